// The tiny HF model as a table of tensors that a test changes and writes out again: as other float types, in shards, or
// in MLX's layout with whatever bits it likes.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FloatType } from '#moeflux/model/floats.js'
import { bfloat16ToFloat32, float32ToBfloat16, float32ToFloat16, widenFloats } from '#moeflux/model/floats.js'
import { allocateQuantizedRows, quantizeRows } from '#moeflux/model/quantize.js'
import type { QuantBits, QuantGroup } from '#moeflux/model/tensors.js'
import { buildSafetensors, type TestTensor } from '../faults/memoryFiles.js'
import { tinySource } from './packedFiles.js'

export type Tensors = Map<string, TestTensor>

export function tinyConfig(): Record<string, unknown> {
  return JSON.parse(readFileSync(join(tinySource, 'config.json'), 'utf8'))
}

export function tinyTensors(): Tensors {
  return readTensorTable(readFileSync(join(tinySource, 'model.safetensors')))
}

/** The tensors of a safetensors file. */
export function readTensorTable(file: Buffer): Tensors {
  const length = Number(file.readBigUInt64LE(0))
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >
  const tensors: Tensors = new Map()
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const [begin, end] = data_offsets.map(offset => 8 + length + offset)
    tensors.set(name, { dtype, shape, data: new Uint8Array(file.subarray(begin, end)) })
  }
  return tensors
}

export function valuesOf(tensor: TestTensor): Float32Array {
  const values = new Float32Array(tensor.shape.reduce((product, dim) => product * dim, 1))
  widenFloats(tensor.dtype as FloatType, tensor.data, values)
  return values
}

export function floatTensor(dtype: FloatType, shape: readonly number[], values: Float32Array): TestTensor {
  if (dtype === 'F32') return { dtype, shape, data: new Uint8Array(values.slice().buffer) }
  const narrow = dtype === 'BF16' ? float32ToBfloat16 : float32ToFloat16
  return { dtype, shape, data: new Uint8Array(Uint16Array.from(values, narrow).buffer) }
}

/** Writes a source folder; with `shards`, tensors are dealt out among so many files with an index. */
export function writeSource(
  folder: string,
  tensors: Tensors,
  options: { config?: unknown; shards?: number; format?: string } = {},
): string {
  const { config = tinyConfig(), shards = 1, format = 'pt' } = options
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config, null, 2))
  if (shards === 1) {
    writeFileSync(join(folder, 'model.safetensors'), buildSafetensors(tensors, { format }))
    return folder
  }
  const dealt = Array.from({ length: shards }, (): Tensors => new Map())
  const weightMap: Record<string, string> = {}
  const fileName = (shard: number) => `model-0000${shard + 1}-of-0000${shards}.safetensors`
  for (const [i, [name, tensor]] of [...tensors].entries()) {
    dealt[i % shards].set(name, tensor)
    weightMap[name] = fileName(i % shards)
  }
  for (const [i, part] of dealt.entries()) {
    writeFileSync(join(folder, fileName(i)), buildSafetensors(part, { format }))
  }
  writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map: weightMap }))
  return folder
}

export interface MlxFormat {
  readonly bits: QuantBits
  readonly group: QuantGroup
  readonly scaleType: 'BF16' | 'F16'
}

/** The same model as MLX exports it. `formatOf` gets names like 'model.layers.0.mlp.gate'; null: left as BF16. */
export function toMlx(tensors: Tensors, formatOf: (name: string) => MlxFormat | null): Tensors {
  const result: Tensors = new Map()
  const stacks = new Map<string, TestTensor[]>()
  for (const [name, tensor] of tensors) {
    const expert = /^(.*)\.mlp\.experts\.(\d+)\.(\w+)\.weight$/.exec(name)
    if (expert !== null) {
      const stack = `${expert[1]}.mlp.switch_mlp.${expert[3]}`
      const list = stacks.get(stack) ?? []
      list[Number(expert[2])] = tensor
      stacks.set(stack, list)
    } else if (name.endsWith('conv1d.weight')) {
      result.set(`language_model.${name}`, { ...tensor, shape: [tensor.shape[0], 4, 1] })
    } else if (name.endsWith('norm.weight') && !name.endsWith('linear_attn.norm.weight')) {
      const plusOne = valuesOf(tensor).map(value => value + 1)
      result.set(`language_model.${name}`, floatTensor('F32', tensor.shape, plusOne))
    } else if (tensor.shape.length === 2) {
      put(result, name.replace(/\.weight$/, ''), tensor.shape, valuesOf(tensor), formatOf)
    } else result.set(`language_model.${name}`, tensor)
  }
  for (const [name, list] of stacks) {
    const values = Float32Array.from(list.flatMap(tensor => [...valuesOf(tensor)]))
    put(result, name, [list.length, ...list[0].shape], values, formatOf)
  }
  return result
}

function put(
  result: Tensors,
  name: string,
  shape: readonly number[],
  values: Float32Array,
  formatOf: (name: string) => MlxFormat | null,
): void {
  const format = formatOf(name)
  const full = `language_model.${name}`
  if (format === null) {
    result.set(`${full}.weight`, floatTensor('BF16', shape, values))
    return
  }
  const { bits, group, scaleType } = format
  const cols = shape.at(-1)!
  const rows = allocateQuantizedRows(values.length / cols, cols, bits, group)
  if (quantizeRows(values, bits, group, rows) !== -1) throw new Error(`cannot quantize ${name}`)
  const lead = shape.slice(0, -1)
  const floats = (part: Uint16Array) =>
    floatTensor(scaleType, [...lead, cols / group], Float32Array.from(part, bfloat16ToFloat32))
  const weight = new Uint8Array(rows.weight.buffer)
  result.set(`${full}.weight`, { dtype: 'U32', shape: [...lead, (cols * bits) / 32], data: weight })
  result.set(`${full}.scales`, floats(rows.scales))
  result.set(`${full}.biases`, floats(rows.biases))
}
