// Every example runs as it stands and says something.
import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { repository } from '../support/packedFiles.js'

const run = promisify(execFile)
const folder = join(repository, 'examples')

it.each(readdirSync(folder))('examples/%s runs', async name => {
  const { stdout, stderr } = await run(process.execPath, [join(folder, name)], { timeout: 50_000 })
  expect(stdout.length).toBeGreaterThan(40)
  expect(stderr).toBe('')
})
