// Where the parts of an expert lie in a GPU slot: as in its record on disk where every weight is aligned for vector
// loads there, which real models' are; else each part is moved to the next such boundary. And how many slots a budget
// gives, in how many buffers.
import { OptionError } from '../../errors.js'
import type { ExpertLayout, Matrix } from '../../model/tensors.js'
import { formatOf, type MatrixFormat } from './matrixWeights.js'

export interface SlotMatrix {
  readonly format: MatrixFormat
  readonly rows: number
  readonly cols: number
  readonly weight: number // bytes from the slot's start
  readonly scales: number
  readonly biases: number
}

export interface SlotLayout {
  readonly stride: number // bytes from one slot to the next
  readonly gate: SlotMatrix
  readonly up: SlotMatrix
  readonly down: SlotMatrix
  /** Copies that turn a record into a slot; null: they are the same. */
  readonly moves: readonly { from: number; to: number; size: number }[] | null
}

export function slotLayout(layout: ExpertLayout): SlotLayout {
  const matrices = [layout.gate, layout.up, layout.down]
  const aligned = matrices.every(matrix => matrix.weight.offset % 16 === 0)
  let end = 0
  const moves: { from: number; to: number; size: number }[] = []
  const place = ({ offset, size }: { offset: number; size: number }) => {
    if (aligned) return offset
    const to = end
    moves.push({ from: offset, to, size })
    end = Math.ceil((end + size) / 16) * 16
    return to
  }
  const placed = matrices.map((matrix: Matrix): SlotMatrix => {
    const weight = place(matrix.weight)
    const quantized = matrix.kind === 'quantized'
    return {
      format: formatOf(matrix),
      rows: matrix.rows,
      cols: matrix.cols,
      weight,
      scales: quantized ? place(matrix.scales) : 0,
      biases: quantized ? place(matrix.biases) : 0,
    }
  })
  const [gate, up, down] = placed
  const stride = aligned ? layout.expertSize : Math.ceil(end / 64) * 64
  return { stride, gate, up, down, moves: aligned ? null : moves }
}

export interface PoolPlan {
  readonly poolOfLayer: readonly number[]
  readonly slots: number // per pool
  readonly pools: number
}

/** Slots of one buffer serve one layer, or several where the budget is small: a pool never holds less than 2 K. */
export function planPools(
  layers: number,
  experts: number,
  k: number,
  stride: number,
  budgetBytes: number,
  maxBufferBytes: number,
): PoolPlan {
  const total = Math.floor(budgetBytes / stride)
  const perBuffer = Math.floor(maxBufferBytes / stride)
  const least = Math.min(2 * k, experts, perBuffer)
  if (perBuffer < k) {
    throw new OptionError('backend', 'webgpu', `a GPU whose bindings hold ${k} experts of ${stride} bytes`)
  }
  if (total < least) {
    throw new OptionError('expertMemory', budgetBytes, `at least ${least * stride} bytes (${least} experts)`)
  }
  const pools = Math.min(layers, Math.floor(total / least))
  const poolOfLayer = Array.from({ length: layers }, (_, layer) => Math.floor((layer * pools) / layers))
  const slots = Math.min(Math.floor(total / pools), perBuffer, Math.ceil(layers / pools) * experts)
  return { poolOfLayer, slots, pools }
}
