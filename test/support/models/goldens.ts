// The reference values of test/data/goldens, which come from another implementation (its name and version are in
// goldens.json).
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from './packedFiles.js'

const folder = join(repository, 'test/data/goldens')

export interface GoldenPrompt {
  readonly ids: Int32Array
  readonly lastLogits: Float32Array // [vocab]
  readonly argmax: Int32Array // [tokens]
  readonly greedy: Int32Array // [48]
}

export class Goldens {
  private readonly tensors: ReadonlyMap<string, Float32Array | Int32Array>

  constructor(file: 'demo' | 'tiny' | 'mtp') {
    this.tensors = readTensors(join(folder, `${file}.safetensors`))
  }

  get names(): string[] {
    return [...this.tensors.keys()]
  }

  floats(name: string): Float32Array {
    return this.tensor(name) as Float32Array
  }

  ints(name: string): Int32Array {
    return this.tensor(name) as Int32Array
  }

  /** Prompt j with its outputs. */
  prompt(j: number): GoldenPrompt {
    return {
      ids: this.ints(`p${j}.input_ids`),
      lastLogits: this.floats(`p${j}.last_logits`),
      argmax: this.ints(`p${j}.argmax`),
      greedy: this.ints(`p${j}.greedy`),
    }
  }

  private tensor(name: string): Float32Array | Int32Array {
    const tensor = this.tensors.get(name)
    if (!tensor) throw new Error(`no golden tensor ${name}`)
    return tensor
  }
}

export function readTensors(path: string): Map<string, Float32Array | Int32Array> {
  const bytes = new Uint8Array(readFileSync(path))
  const headerSize = Number(new DataView(bytes.buffer).getBigUint64(0, true))
  const header: Record<string, { dtype: string; data_offsets: [number, number] }> = JSON.parse(
    new TextDecoder().decode(bytes.subarray(8, 8 + headerSize)),
  )
  const tensors = new Map<string, Float32Array | Int32Array>()
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const [begin, end] = entry.data_offsets
    const { buffer } = bytes.slice(8 + headerSize + begin, 8 + headerSize + end)
    tensors.set(name, entry.dtype === 'I32' ? new Int32Array(buffer) : new Float32Array(buffer))
  }
  return tensors
}
