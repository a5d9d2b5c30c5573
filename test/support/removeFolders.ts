// Runs before each test file, of which several may share a process.
import { afterAll } from 'vitest'
import { removeFolders } from './temporaryFolders.js'

afterAll(removeFolders)
