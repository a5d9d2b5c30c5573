// The buffers that expert slots lie in, by pool: where a slot is in its buffer, and how a pool becomes smaller when the GPU
// needs its memory for something else. What is in a slot is nobody's business here.
import { DeviceLostError, OutOfMemoryError } from '../../base/errors.js'
import { POOL_USAGE } from '../device/gpuFlags.js'
import { createChecked, settle } from '../device/gpuMemory.js'
import { otherSlots, type PoolPlan } from './slotLayout.js'

/** The buffer of a layer's experts. It may be replaced, and then has another generation. */
export interface PoolBuffer {
  readonly generation: number
  readonly buffer: GPUBuffer
}

export class SlotPools {
  /** Counts how often a buffer was replaced. */
  generation = 0
  private readonly device: GPUDevice
  private readonly plan: PoolPlan
  private readonly stride: number
  private readonly buffers: GPUBuffer[]
  private readonly others: readonly number[] // slots before those of experts
  private readonly slots: number[] // of experts

  constructor(device: GPUDevice, plan: PoolPlan, stride: number, buffers: readonly GPUBuffer[]) {
    this.device = device
    this.plan = plan
    this.stride = stride
    this.buffers = [...buffers]
    this.others = buffers.map((_, pool) => otherSlots(plan, pool))
    this.slots = buffers.map(() => plan.slots)
  }

  /** Slots of the smallest pool: what one layer can have at once. */
  get least(): number {
    return Math.min(...this.slots)
  }

  get bytes(): number {
    return this.slots.reduce((sum, slots) => sum + slots, 0) * this.stride
  }

  slotsOf(pool: number): number {
    return this.slots[pool]
  }

  of(layer: number): PoolBuffer {
    const pools = this
    return {
      get generation() {
        return pools.generation
      },
      get buffer() {
        return pools.buffer(layer)
      },
    }
  }

  buffer(layer: number): GPUBuffer {
    return this.buffers[this.plan.poolOfLayer[layer]]
  }

  /** Where a slot, counted over all pools, lies in its pool's buffer. */
  placeOf(slot: number): number {
    const { slots } = this.plan
    return this.others[Math.floor(slot / slots)] + (slot % slots)
  }

  /** Makes a pool's buffer anew with fewer slots: what was in it is gone. `least`: where even that is refused. */
  async shrink(pool: number, slots: number, least: number): Promise<void> {
    this.buffers[pool].destroy()
    await settle(this.device)
    for (const count of [slots, least]) {
      const size = (count + this.others[pool]) * this.stride
      const descriptor = { label: `experts ${pool}`, size, usage: POOL_USAGE }
      try {
        const [buffer] = await createChecked(this.device, [descriptor], 'expert memory')
        this.buffers[pool] = buffer
        this.slots[pool] = count
        this.generation++
        return
      } catch (error) {
        if (!(error instanceof OutOfMemoryError)) throw error
      }
    }
    throw new DeviceLostError('webgpu', 'the GPU does not give memory again that it has just been given back')
  }
}
