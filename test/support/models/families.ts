// Tiny models of other families, as published checkpoints have them, with reference values (test/data/families/README.md).
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import type { PackingOptions } from '#moeflux/files/convert/packingPlan.js'
import { readTensors } from './goldens.js'
import { repository } from './packedFiles.js'

/** A family joins the tests of all backends with one line here. */
export const familyNames = ['qwen3_5', 'qwen3_moe', 'qwen3_next', 'glm4_moe', 'gpt_oss'] as const

export type FamilyName = (typeof familyNames)[number]

const dataOf = (name: FamilyName, file: string) => join(repository, 'test/data/families', name, file)

/** Puts the checkpoint of a family into a folder. */
export function writeFamily(name: FamilyName, folder: string): string {
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'config.json'), readFileSync(dataOf(name, 'config.json')))
  writeFileSync(join(folder, 'model.safetensors'), familyCheckpoint(name))
  return folder
}

export function familyCheckpoint(name: FamilyName): Uint8Array {
  return brotliDecompressSync(readFileSync(dataOf(name, 'model.safetensors.br')))
}

export function familyConfig(name: FamilyName): Record<string, unknown> {
  return JSON.parse(readFileSync(dataOf(name, 'config.json'), 'utf8'))
}

/** Options of a conversion that changes no weight. */
export function keptWeights(name: FamilyName): PackingOptions {
  return familyConfig(name).quantization_config === undefined ? { bits: 16 } : {}
}

export class FamilyGoldens {
  private readonly tensors: ReadonlyMap<string, Float32Array | Int32Array>

  constructor(name: FamilyName) {
    this.tensors = readTensors(dataOf(name, 'golden.safetensors'))
  }

  has(name: string): boolean {
    return this.tensors.has(name)
  }

  floats(name: string): Float32Array {
    return this.tensor(name) as Float32Array
  }

  ints(name: string): number[] {
    return [...(this.tensor(name) as Int32Array)]
  }

  private tensor(name: string): Float32Array | Int32Array {
    const tensor = this.tensors.get(name)
    if (!tensor) throw new Error(`no golden tensor ${name}`)
    return tensor
  }
}
