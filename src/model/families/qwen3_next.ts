// Qwen3-Next (80B-A3B, Coder-Next): layers as in qwen3_5_moe, but the delta net's inputs are packed by key head: q, k, v and z
// of each in one projection, b and a in another. Their rows are sorted out when packing.
import type { DeltaSizes, Family, SourceRows } from './family.js'
import { ggufHybridMoe, readHybridMoe } from './sharedExpertMoe.js'

export const qwen3_next: Family = {
  name: 'qwen3_next',
  modelTypes: ['qwen3_next'],
  dialect: 'hermes',
  zeroCentredNorms: true,
  source: { renames: [], fusedExperts: 'stacked', rowsOf },
  gguf: {
    architecture: 'qwen3next',
    modelType: 'qwen3_next',
    names: { 'linear_attn.in_proj_ba': 'ssm_ba.weight' },
    configOf: ggufHybridMoe,
  },

  readShapes: readHybridMoe,
}

/** Per key head: q, k, then v and z of its value heads; b of its value heads, then a of them. */
function rowsOf(name: string, shapes: DeltaSizes): SourceRows | null {
  const match = /^(.*\.linear_attn\.)in_proj_(qkv|z|a|b)$/.exec(name)
  if (match === null) return null
  const [, at, part] = match
  const { linearKeyHeads: keyHeads, linearValueHeads, linearKeyDim: key, linearValueDim } = shapes
  const valueHeads = linearValueHeads / keyHeads // of a key head
  const value = valueHeads * linearValueDim
  const inHead = (row: number, size: number, headSize: number, first: number) =>
    Math.floor(row / size) * headSize + first + (row % size)
  if (part === 'a' || part === 'b') {
    const first = part === 'b' ? 0 : valueHeads
    const rowOf = (row: number) => inHead(row, valueHeads, 2 * valueHeads, first)
    return { name: `${at}in_proj_ba`, rows: 2 * linearValueHeads, rowOf }
  }
  const headSize = 2 * key + 2 * value
  const rowOf = (row: number) => {
    if (part === 'z') return inHead(row, value, headSize, 2 * key + value)
    if (row < keyHeads * key) return inHead(row, key, headSize, 0)
    if (row < 2 * keyHeads * key) return inHead(row - keyHeads * key, key, headSize, key)
    return inHead(row - 2 * keyHeads * key, value, headSize, 2 * key)
  }
  return { name: `${at}in_proj_qkvz`, rows: keyHeads * headSize, rowOf }
}
