// Stores of models for tests of names: the built-in model under any name, and pulls that were stopped.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { folderNameFor } from '#moeflux/files/models/modelName.js'
import { demoModelPath } from '#moeflux/files/models/modelStore.js'

/** Puts the built-in model into a store under another name; returns its folder. */
export function storeDemo(home: string, name: string): string {
  const folder = join(home, 'models', folderNameFor(name))
  packDemo(folder, name)
  return folder
}

/** The same anywhere else. */
export function packDemo(folder: string, name: string): void {
  cpSync(demoModelPath(), folder, { recursive: true })
  const metadata = join(folder, 'moeflux.json')
  const json = JSON.parse(readFileSync(metadata, 'utf8'))
  writeFileSync(metadata, JSON.stringify({ ...json, model: name }))
}

/** What a pull leaves that was stopped after some bytes. */
export function startPull(home: string, name: string, bytes = 5000): void {
  const folder = join(home, 'downloads', `${folderNameFor(name)}@c0ffee00`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'model.safetensors'), Buffer.alloc(bytes, 1))
}
