// What an MLX config.json says of its quantization: the default bits and group, and the tensors that differ. Names are
// kept as the file has them; whoever looks a tensor up strips prefixes the same way on both sides.
import { UnsupportedModelError } from '../base/errors.js'
import type { QuantBits, QuantGroup } from './tensors.js'

export interface QuantFormat {
  readonly bits: QuantBits
  readonly group: QuantGroup
}

export interface Quantization extends QuantFormat {
  /** Tensor base names that differ from the default; null: not quantized. */
  readonly overrides: ReadonlyMap<string, QuantFormat | null>
  readonly smallestGroup: QuantGroup
}

const BITS: readonly unknown[] = [2, 4, 8]
const GROUPS: readonly unknown[] = [32, 64, 128]

/** Null where there is no quantization block; throws where it is one that this engine does not compute. */
export function parseQuantization(json: unknown): Quantization | null {
  if (json === undefined || json === null) return null
  const where = 'quantization'
  if (typeof json !== 'object' || Array.isArray(json)) throw new UnsupportedModelError(where, json, 'an object')
  const block = json as Record<string, unknown>
  // Experts in MXFP4 say so by their tensors, and nothing else of such a checkpoint is quantized.
  if (block.quant_method === 'mxfp4') return null
  if (block.quant_method !== undefined) {
    throw new UnsupportedModelError(`${where}.quant_method`, block.quant_method, 'mxfp4, or none (MLX quantization)')
  }
  const main = parseFormat(where, block)
  const overrides = new Map<string, QuantFormat | null>()
  for (const [name, value] of Object.entries(block)) {
    if (name === 'bits' || name === 'group_size' || name === 'mode') continue
    if (value === false) overrides.set(name, null)
    else if (typeof value === 'object' && value !== null) {
      overrides.set(name, parseFormat(`${where}.${name}`, value as Record<string, unknown>, main))
    }
  }
  const groups = [main.group, ...[...overrides.values()].flatMap(format => format?.group ?? [])]
  return { ...main, overrides, smallestGroup: Math.min(...groups) as QuantGroup }
}

function parseFormat(where: string, block: Record<string, unknown>, main?: QuantFormat): QuantFormat {
  const mode = block.mode ?? 'affine'
  if (mode !== 'affine' && mode !== 'mxfp4') throw new UnsupportedModelError(`${where}.mode`, mode, 'affine or mxfp4')
  const bits = block.bits ?? main?.bits
  if (!BITS.includes(bits)) throw new UnsupportedModelError(`${where}.bits`, bits, '2, 4 or 8')
  const group = block.group_size ?? main?.group
  if (!GROUPS.includes(group)) throw new UnsupportedModelError(`${where}.group_size`, group, '32, 64 or 128')
  return { bits: bits as QuantBits, group: group as QuantGroup }
}
