// Reading ahead for a prompt's next layer, where experts are on a GPU, in memory and on disk, over a disk and a GPU that do
// what the test says.
import { describe, expect, test } from 'vitest'
import { MemoryClaims } from '#moeflux/experts/claims.js'
import { ExpertTiers } from '#moeflux/experts/expertTiers.js'
import { StreamerCore } from '#moeflux/experts/streamerCore.js'
import { PromptAhead } from '#moeflux/experts/tieredPrefetch.js'

const layers = 4
const experts = 8
const every = Array.from({ length: experts }, (_, expert) => expert)

class World {
  readonly tiers: ExpertTiers
  readonly core: StreamerCore
  readonly ahead: PromptAhead
  readonly gpu = { isServed: true, isReading: false, stallSeconds: 0 }
  readonly queue: number[] = [] // slots whose read has not begun

  constructor(memorySlots: number, most = 4) {
    const sizes = { poolSlots: 1, poolOfLayer: [0, 1, 2, 3], memorySlots }
    const shape = { layers, experts, expertBytes: 1, policy: 'lrfu', ...sizes } as const
    this.tiers = new ExpertTiers(shape, { bytesPerStep: 0, usesToPay: 1 })
    const orders = {
      ask: (slot: number) => this.queue.push(slot),
      promote: () => {},
      callOff: (slot: number) => this.ahead.isOwn(slot) && this.queue.splice(this.queue.indexOf(slot), 1).length > 0,
    }
    this.core = new StreamerCore(this.tiers.memory, orders, {
      claims: new MemoryClaims(this.tiers, () => false),
      onOver: slot => this.ahead.ended(slot),
      ...{ aheadLimit: 16, expertSize: 1, fileNames: ['', '', '', ''] },
    })
    const gpu = {
      isServed: () => this.gpu.isServed,
      isReading: () => this.gpu.isReading,
      stallSeconds: () => this.gpu.stallSeconds,
    }
    this.ahead = new PromptAhead(this.tiers, this.core, gpu, most)
    this.tiers.beginStep()
  }

  /** Layers and experts whose reads have not ended. */
  get asked(): string[] {
    return this.queue.map(slot => `${this.tiers.memory.layerOf(slot)}:${this.tiers.memory.expertOf(slot)}`)
  }

  inMemory(layer: number): number[] {
    return every.filter(expert => this.tiers.memory.slotOf(layer, expert) >= 0)
  }

  /** The next read ends. */
  arrive(fails = false): void {
    this.core.ended(this.queue.shift() as number, fails ? { detail: 'EIO' } : null)
    this.core.goOn()
    this.ahead.goOn()
  }

  arriveAll(): void {
    while (this.queue.length > 0) this.arrive()
  }

  /** A layer is computed in memory, from its request to its end; whether it was there before is told. */
  compute(layer: number, wanted: readonly number[], meanwhile: () => void = () => {}): void {
    this.core.request(layer, wanted)
    meanwhile()
    for (let left = wanted.length; left > 0; ) {
      left -= this.core.take(experts).length
      this.core.giveBack()
      this.core.goOn()
      if (left > 0) this.arrive()
    }
    this.core.release()
    this.ahead.goOn()
  }
}

describe('reading ahead in a prompt on three tiers', () => {
  test('reads all of the next layer where most of this one is wanted, else what is guessed, some at a time', () => {
    const world = new World(32)
    world.core.request(0, every)
    world.ahead.begin(1, every.length, [6, 2])
    expect(world.asked.slice(experts)).toEqual(['1:0', '1:1', '1:2', '1:3'])
    world.arrive()
    expect(world.asked).toHaveLength(experts + 3)
    world.arriveAll()
    world.core.release()
    world.core.request(1, [3, 4])
    world.ahead.begin(2, 2, [6, 2])
    expect(world.asked).toEqual(['2:6', '2:2'])
  })

  test('begins when the present layer has slots, and while nobody waits for a read past memory', () => {
    const world = new World(4)
    world.core.request(0, every) // in two turns
    world.ahead.begin(1, every.length, [])
    for (let i = 0; i < 4; i++) world.arrive()
    expect(world.asked).toEqual([])
    world.core.take(4)
    world.core.giveBack()
    world.core.goOn()
    expect(world.asked).toEqual(['0:4', '0:5', '0:6', '0:7'])
    world.arriveAll()
    world.core.take(4)
    world.gpu.isReading = true
    world.core.release()
    world.ahead.goOn()
    expect(world.asked).toEqual([])
    world.gpu.isReading = false
    world.ahead.goOn()
    expect(world.asked).toEqual(['1:0', '1:1', '1:2', '1:3'])
  })

  test('takes places of turns that are over, of the present layer none that the GPU may still want', () => {
    const world = new World(3 * experts)
    for (const layer of [0, 1, 3]) world.compute(layer, every) // memory is full
    world.tiers.beginStep()
    world.compute(0, every)
    world.core.request(1, [0, 1, 2]) // others go to the GPU, and wait for a slot there
    world.gpu.isServed = false
    world.ahead.begin(2, every.length, [])
    world.arriveAll()
    expect(world.inMemory(0)).toEqual([])
    expect(world.inMemory(1)).toEqual(every)
    expect(world.inMemory(2)).toEqual(every)
    expect(world.inMemory(3)).toEqual(every)
  })

  test('takes of the present layer what is not pinned when the GPU is served, and nothing of a later one', () => {
    const world = new World(2 * experts)
    for (const layer of [1, 3]) world.compute(layer, every)
    world.tiers.beginStep()
    world.core.request(1, [0, 1, 2])
    world.ahead.begin(2, every.length, [])
    world.arriveAll()
    expect(world.inMemory(1)).toEqual([0, 1, 2])
    expect(world.inMemory(2)).toHaveLength(5)
    expect(world.inMemory(3)).toEqual(every)
    world.core.release()
    world.ahead.goOn()
    world.arriveAll()
    expect(world.inMemory(1)).toEqual([])
    expect(world.inMemory(2)).toEqual(every)
    expect(world.inMemory(3)).toEqual(every)
  })

  test('calls off what was not begun when the layer wants others, or the prompt is given up', () => {
    const world = new World(32)
    world.core.request(0, [0])
    world.ahead.begin(1, 1, [6, 2, 5])
    expect(world.asked).toEqual(['0:0', '1:6', '1:2', '1:5'])
    world.arriveAll()
    world.core.release()
    world.core.request(1, [2])
    world.ahead.begin(2, 1, [1, 3])
    expect(world.asked).toEqual(['2:1', '2:3'])
    world.core.release()
    world.ahead.begin(3, 1, [7]) // nobody asked for the guesses of layer 2
    expect(world.asked).toEqual(['3:7'])
    world.ahead.end()
    expect(world.asked).toEqual([])
    world.ahead.goOn()
    expect(world.asked).toEqual([])
    expect(world.core.stats.prefetchReads).toBe(3)
  })

  test('fails nobody by a read that nobody asked for', () => {
    const world = new World(32)
    world.core.request(0, [0])
    world.ahead.begin(1, 1, [6])
    world.arrive()
    world.core.take(1)
    world.core.release()
    world.core.request(1, [6]) // waits for it
    world.arrive(true)
    expect(world.core.failure).toBeNull()
    expect(world.asked).toEqual(['1:6'])
    world.arrive()
    expect(world.core.isComplete).toBe(true)
  })

  test('leaves a disk alone that keeps up by itself', () => {
    const world = new World(32)
    const chunk = (stallSeconds: number) => {
      const first = world.ahead.wantsHelp(0)
      world.compute(0, every)
      world.gpu.stallSeconds += stallSeconds
      const second = world.ahead.wantsHelp(1)
      world.core.forget()
      return [first, second]
    }
    expect([chunk(0.5), chunk(0), chunk(0.5)]).toEqual([
      [true, true],
      [true, false],
      [false, true],
    ])
  })

  test('reads hardly anything once more, however many slots there are', () => {
    for (const slots of [4, 8, 12, 20, 28]) {
      const readsOf = (helps: boolean) => {
        const world = new World(slots)
        const { memory } = world.tiers
        const chunks = 12
        for (let step = 0; step < chunks * layers; step++) {
          const layer = step % layers
          if (layer === 0) world.tiers.beginStep()
          world.compute(layer, every, () => {
            if (helps && layer + 1 < layers) world.ahead.begin(layer + 1, experts, [])
          })
          for (let i = 0; i < 3 && world.queue.length > 0; i++) world.arrive()
          if (layer + 1 === layers) world.ahead.end()
        }
        world.arriveAll()
        return { demands: memory.counters.misses, all: memory.counters.misses + memory.counters.prefetchReads }
      }
      const plain = readsOf(false)
      const helped = readsOf(true)
      expect(helped.demands, `${slots} slots`).toBeLessThan(0.8 * plain.demands)
      expect(helped.all, `${slots} slots`).toBeLessThan(1.15 * plain.all)
    }
  })
})
