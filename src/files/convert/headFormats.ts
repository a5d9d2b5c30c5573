// In which bits the experts of a head for drafts are stored. Records are of one size in all layers, since slots in memory serve any of
// them: a head that was left in 16 or 8 bits beside experts of 4 would make every record of the model as large as its own.
// It gets as many bits as fit into a record instead. Guesses are checked by the model, so that no text depends on it.
import type { ModelConfig } from '../../model/config.js'
import {
  type ExpertFormats,
  expertLayouts,
  expertParts,
  PROJECTIONS,
  projectionShape,
} from '../../model/expertLayout.js'
import { QUANT_BITS } from '../../model/quantize.js'

const GROUP = 64

/** `formats`: of all layers with experts; the head's is the last one. */
export function fitHead(config: ModelConfig, formats: readonly ExpertFormats[]): readonly ExpertFormats[] {
  const own = formats.slice(0, -1)
  const head = formats.at(-1)
  if (config.draftHead?.feedForward.kind !== 'moe' || head === undefined || own.length === 0) return formats
  const most = Math.max(...own.map(each => recordBytes(config, each)))
  if (recordBytes(config, head) <= most) return formats
  if (PROJECTIONS.some(projection => projectionShape(config, projection)[1] % GROUP !== 0)) return formats
  const narrower = [...QUANT_BITS]
    .sort((a, b) => b - a)
    .map((bits): ExpertFormats => {
      const format = { kind: 'quantized', bits, group: GROUP, scaleType: 'BF16' } as const
      return { gate: format, up: format, down: format }
    })
  return [...own, narrower.find(each => recordBytes(config, each) <= most) ?? head]
}

function recordBytes(config: ModelConfig, formats: ExpertFormats): number {
  return expertLayouts(config, [expertParts(config, formats)], 'experts')[0].expertSize
}
