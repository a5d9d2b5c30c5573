// Where the parts of an expert lie in a GPU slot: as in its record on disk where every weight is aligned for vector
// loads there, which real models' are; else each part is moved to the next such boundary. And how many slots a budget
// gives, in how many buffers.
import { OptionError } from '../../base/errors.js'
import { FLOAT_BYTES } from '../../model/floats.js'
import type { ExpertLayout, LayerTensors, Matrix, Vector } from '../../model/tensors.js'
import { formatOf, type GpuFormat, type SlotFloats } from './matrixWeights.js'

export interface SlotMatrix {
  readonly format: GpuFormat
  readonly rows: number
  readonly cols: number
  readonly weight: number // bytes from the slot's start
  readonly scales: number
  readonly biases: number
  readonly bias?: SlotFloats
}

/** Bytes that go from one place to another. */
export interface SlotMove {
  readonly from: number
  readonly to: number
  readonly size: number
}

export interface SlotLayout {
  readonly stride: number // bytes from one slot to the next
  readonly gate: SlotMatrix
  readonly up: SlotMatrix
  readonly down: SlotMatrix
  /** Copies that turn a record into a slot; null: they are the same. */
  readonly moves: readonly SlotMove[] | null
}

/** The layouts of all layers with experts, whose slots are of one size. */
export function slotLayouts(layouts: readonly ExpertLayout[]): SlotLayout[] {
  const own = layouts.map(slotLayout)
  const stride = Math.max(...own.map(layout => layout.stride))
  return own.map(layout => ({ ...layout, stride }))
}

export function slotLayout(layout: ExpertLayout): SlotLayout {
  const matrices = [layout.gate, layout.up, layout.down]
  const biases = [layout.gateBias, layout.upBias, layout.downBias]
  const isApt = (bias: Vector | null) => bias === null || bias.data.offset % FLOAT_BYTES[bias.type] === 0
  const aligned = matrices.every(matrix => matrix.weight.offset % 16 === 0) && biases.every(isApt)
  let end = 0
  const moves: SlotMove[] = []
  const place = ({ offset, size }: { offset: number; size: number }) => {
    if (aligned) return offset
    const to = end
    moves.push({ from: offset, to, size })
    end = Math.ceil((end + size) / 16) * 16
    return to
  }
  const placeBias = (bias: Vector | null) => bias && { bias: { type: bias.type, offset: place(bias.data) } }
  const placed = matrices.map((matrix: Matrix, i): SlotMatrix => {
    const weight = place(matrix.weight)
    return {
      format: formatOf(matrix),
      rows: matrix.rows,
      cols: matrix.cols,
      weight,
      scales: matrix.kind === 'plain' ? 0 : place(matrix.scales),
      biases: matrix.kind === 'quantized' ? place(matrix.biases) : 0,
      ...placeBias(biases[i]),
    }
  })
  const [gate, up, down] = placed
  const stride = aligned ? layout.expertSize : Math.ceil(end / 64) * 64
  return { stride, gate, up, down, moves: aligned ? null : moves }
}

/** What brings a layer's shared expert from the weights file into a slot; null where it is not shaped like an expert. */
export function sharedMoves({ feedForward }: LayerTensors, layout: SlotLayout): SlotMove[] | null {
  if (feedForward.kind === 'dense' || feedForward.shared === null || layout.gate.bias) return null
  const { expert: shared } = feedForward.shared
  const moves: SlotMove[] = []
  for (const name of ['gate', 'up', 'down'] as const) {
    const matrix = shared[name]
    const slot = layout[name]
    const isAlike = matrix.rows === slot.rows && matrix.cols === slot.cols
    if (!isAlike || JSON.stringify(formatOf(matrix)) !== JSON.stringify(slot.format)) return null
    moves.push({ from: matrix.weight.offset, to: slot.weight, size: matrix.weight.size })
    if (matrix.kind !== 'plain') {
      moves.push({ from: matrix.scales.offset, to: slot.scales, size: matrix.scales.size })
    }
    if (matrix.kind === 'quantized') {
      moves.push({ from: matrix.biases.offset, to: slot.biases, size: matrix.biases.size })
    }
  }
  return moves
}

export interface PoolPlan {
  readonly poolOfLayer: readonly number[]
  readonly slots: number // per pool
  readonly pools: number
  /** Each pool has one more slot per layer, for its shared expert. */
  readonly hasShared: boolean
}

export interface PoolRequest {
  readonly layers: number
  readonly experts: number // per layer
  readonly k: number
  readonly stride: number
  readonly maxBufferBytes: number
  readonly wantsShared: boolean
}

/** A pool never holds less than 2 K: a layer's experts have room while the next one's are read. */
export function leastSlots({ experts, k, stride, maxBufferBytes }: PoolRequest): number {
  return Math.min(2 * k, experts, Math.floor(maxBufferBytes / stride))
}

/** Whether shared experts have room beside the others. */
export function hasSharedSlots({ layers, k, stride, maxBufferBytes, wantsShared }: PoolRequest): boolean {
  return wantsShared && Math.floor(maxBufferBytes / stride) > 2 * k + layers
}

/** Slots of one buffer serve one layer, or several where there are few. `total`: slots for experts, at least the least. */
export function planPools(request: PoolRequest, total: number): PoolPlan {
  const { layers, experts, k, stride, maxBufferBytes } = request
  if (layers === 0) return { poolOfLayer: [], slots: 0, pools: 0, hasShared: false }
  const room = Math.floor(maxBufferBytes / stride)
  const hasShared = hasSharedSlots(request)
  if (room < k) throw new OptionError('backend', 'webgpu', `a GPU whose bindings hold ${k} experts of ${stride} bytes`)
  const pools = Math.max(1, Math.min(layers, Math.floor(total / leastSlots(request))))
  const perPool = Math.ceil(layers / pools)
  const poolOfLayer = Array.from({ length: layers }, (_, layer) => Math.floor((layer * pools) / layers))
  const slots = Math.min(Math.floor(total / pools), room - (hasShared ? perPool : 0), perPool * experts)
  return { poolOfLayer, slots, pools, hasShared }
}

/** Slots of a pool that are no expert's, before those that are: its layers' shared experts, or one that stays empty. */
export function otherSlots({ hasShared, poolOfLayer }: PoolPlan, pool: number): number {
  return hasShared ? poolOfLayer.filter(each => each === pool).length : 1
}

/** What the buffers of the pools take. */
export function poolBytes(plan: PoolPlan, stride: number): number[] {
  return Array.from({ length: plan.pools }, (_, pool) => (plan.slots + otherSlots(plan, pool)) * stride)
}
