// How many experts the reference backend keeps. Its weights are JavaScript arrays with scales, and all that is not
// quantized, widened to float32; what it computes with is garbage a moment later. Where memory cannot be looked at (a tab),
// it takes a fixed amount.
import { PLANNED_TOKENS } from '../../base/defaults.js'
import type { MemoryFacts } from '../../base/memoryFacts.js'
import type { PackedModel } from '../../files/packed/packedModel.js'
import { blockFormat } from '../../model/blockFormats.js'
import { FLOAT_BYTES } from '../../model/floats.js'
import { kvBytesPerToken, recurrentBytes } from '../../model/sizes.js'
import { storedBytes } from '../../model/tensorParts.js'
import type { Matrix } from '../../model/tensors.js'
import type { BackendOptions } from '../backend.js'
import { planBudget } from '../plan.js'

const DEFAULT_EXPERT_MEMORY = 2 ** 30
/** The program, and arrays that wait for the collector: it comes when 64 MB of them have gathered. */
const PROGRAM_BYTES = 96e6
const READS_AT_ONCE = 8

/** Experts to keep: what was asked for, or what fits. */
export async function planReferenceExperts(packed: PackedModel, options: BackendOptions): Promise<number> {
  const { config, tensors, experts } = packed
  const { layout, layouts } = experts
  const all = config.expertLayers.length * config.numExperts
  const planned = options.planned ?? { tokens: PLANNED_TOKENS, sequences: 1, isContext: true }
  const wide = Math.max(
    ...layouts.map(({ gate, up, down }) => [gate, up, down].reduce((n, m) => n + widenedBytes(m), 0)),
  )
  const stretch = widenedBytes(tensors.lmHead) / storedBytes(tensors.lmHead) // the other matrices are of the same kind
  const { slots, notice } = planBudget({
    memory: await findMemory(),
    ways: [
      {
        slotCost: wide,
        parts: [
          { what: 'weights', bytes: packed.weights.size * stretch },
          { what: 'recurrent state', bytes: (1 + 2 * planned.sequences) * recurrentBytes(config) },
          { what: 'the program', bytes: PROGRAM_BYTES + READS_AT_ONCE * (wide + layout.expertSize) },
        ],
        notice: null,
      },
    ],
    slotBytes: layout.expertSize,
    experts: all,
    leastSlots: Math.min(1, all),
    expertMemory: options.expertMemory,
    tokens: planned.tokens,
    tokenBytes: kvBytesPerToken(config),
    isContext: planned.isContext,
    threads: { count: 1, bytes: 0 },
  })
  if (all === 0) return 0
  const most = Math.max(1, Math.min(all, Math.floor(DEFAULT_EXPERT_MEMORY / layout.expertSize)))
  if (options.expertMemory === undefined && slots >= most) return most
  if (notice) options.onNotice?.(notice)
  return slots
}

async function findMemory(): Promise<MemoryFacts> {
  const unknown = Number.POSITIVE_INFINITY
  if (globalThis.process?.versions?.node === undefined) {
    return { bytes: unknown, ceiling: unknown, limit: unknown, limitedBy: 'machine' }
  }
  const { availableMemory } = await import('../../base/nodeMemory.js')
  return availableMemory()
}

function widenedBytes(matrix: Matrix): number {
  if (matrix.kind === 'plain') return (matrix.weight.size / FLOAT_BYTES[matrix.type]) * 4
  if (matrix.kind === 'blocks') {
    return matrix.weight.size + ((matrix.rows * matrix.cols) / blockFormat(matrix.block).group) * 2 * 4
  }
  return matrix.weight.size + ((matrix.scales.size + matrix.biases.size) / FLOAT_BYTES[matrix.scaleType]) * 4
}
