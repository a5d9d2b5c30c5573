// What it costs that a GGUF type becomes one of the packed folder's: bits a weight before and after, and the largest error,
// which is measured on some rows of some matrices.
import { blockFormat, dequantizeBlocks } from '../../model/blockFormats.js'
import { widenFloats } from '../../model/floats.js'
import { dequantizeRows } from '../../model/quantize.js'
import { openGgufFile } from './ggufFile.js'
import { modelConfigOf, type OpenFile } from './ggufFolder.js'
import { nameTensors } from './ggufTensors.js'
import { RELAY_GROUP } from './repackAffine.js'
import type { MatrixTarget, RelaidMatrix } from './repackedMatrix.js'

export interface RelayCost {
  readonly type: string
  readonly storedAs: string // '4-bit', 'BF16'
  readonly weights: number
  readonly bits: number // a weight, with scales
  readonly storedBits: number
  /** Of the largest weight of a group of 32; 0: all that were looked at are the same. */
  readonly largestError: number
}

const MATRICES = 6
const ROWS = 4

/** Nothing for a file of floats alone: those are quantized by the options of the conversion, or kept. */
export async function relayCosts(path: string, open: OpenFile): Promise<RelayCost[]> {
  const file = await openGgufFile(path, open)
  try {
    const kinds = new Map<string, RelaidMatrix[]>()
    for (const { matrix } of nameTensors(file, modelConfigOf(file)).matrices) {
      const kind = `${matrix.tensor.type.name} ${JSON.stringify(matrix.target)}`
      kinds.set(kind, [...(kinds.get(kind) ?? []), matrix])
    }
    const all = [...kinds.values()]
    if (all.every(([{ target }]) => target.kind === 'plain')) return []
    const costs: RelayCost[] = []
    for (const matrices of all) costs.push(await costOf(matrices))
    return costs.sort((a, b) => b.weights - a.weights)
  } finally {
    await file.close()
  }
}

async function costOf(matrices: readonly RelaidMatrix[]): Promise<RelayCost> {
  const { tensor, target } = matrices[0]
  const { name, blockBytes, blockValues } = tensor.type
  let largestError = 0
  for (const matrix of spread(matrices, MATRICES)) largestError = Math.max(largestError, await errorOf(matrix))
  return {
    type: name,
    storedAs: nameOf(target),
    weights: matrices.reduce((sum, { rows, cols }) => sum + rows * cols, 0),
    bits: (blockBytes * 8) / blockValues,
    storedBits: bitsOf(matrices[0]),
    largestError,
  }
}

function nameOf(target: MatrixTarget): string {
  if (target.kind === 'plain') return target.type
  return target.kind === 'blocks' ? `${blockFormat(target.block).bits}-bit blocks` : `${target.bits}-bit`
}

/** Of a weight, with its scales. */
function bitsOf({ rowBytes, cols }: RelaidMatrix): number {
  return ((rowBytes.weight + rowBytes.scales + rowBytes.biases) * 8) / cols
}

async function errorOf(matrix: RelaidMatrix): Promise<number> {
  const rows = Math.min(ROWS, matrix.rows)
  const want = await matrix.values(0, rows)
  const got = new Float32Array(want.length)
  const { target } = matrix
  const stored = await matrix.read(0, rows)
  if (target.kind === 'plain') widenFloats(target.type, stored.weight, got)
  else if (target.kind === 'affine') dequantizeRows({ ...stored, scaleType: 'F16' }, target.bits, RELAY_GROUP, got)
  else dequantizeBlocks(blockFormat(target.block), target.span, stored.weight, stored.scales, got)
  let error = 0
  for (let g = 0; g < want.length; g += RELAY_GROUP) {
    let size = 0
    let difference = 0
    for (let i = g; i < Math.min(g + RELAY_GROUP, want.length); i++) {
      size = Math.max(size, Math.abs(want[i]))
      difference = Math.max(difference, Math.abs(got[i] - want[i]))
    }
    if (difference > 0) error = Math.max(error, difference / size)
  }
  return error
}

/** Some of a list, from its start to its end. */
function spread<T>(all: readonly T[], count: number): T[] {
  if (all.length <= count) return [...all]
  return Array.from({ length: count }, (_, i) => all[Math.floor((i * (all.length - 1)) / (count - 1))])
}
