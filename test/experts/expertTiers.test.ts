// Experts on a GPU, in memory and on disk: moves that pay, against a plain model of the same rules.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { PolicyName } from '#moeflux/experts/evictionPolicy.js'
import { ExpertTiers, type Place, type Promotion, type TierShape } from '#moeflux/experts/expertTiers.js'
import { tokensOfExperts } from '#moeflux/lab/traces/routingTrace.js'
import { replayStep, simulateTiers, tierShape } from '#moeflux/lab/traces/simulateTiers.js'
import { simulateTrace } from '#moeflux/lab/traces/simulateTrace.js'
import { NaiveTiers } from '../support/models/naiveTiers.js'
import { randomTrace } from '../support/models/randomTrace.js'

const layers = 3
const experts = 4
const expertBytes = 100

type Action =
  | { kind: 'want' | 'bring'; layer: number; expert: number }
  | { kind: 'read' | 'failRead' | 'release' | 'step' | 'promote' | 'upload' | 'failUpload' | 'arrive'; pick: number }

const name = { layer: fc.nat(layers - 1), expert: fc.nat(experts - 1) }
const some = <K extends string>(weight: number, ...kinds: K[]) => ({
  weight,
  arbitrary: fc.record({ kind: fc.constantFrom(...kinds), pick: fc.nat(99) }),
})
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('want' as const), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('bring' as const), ...name }) },
  some(14, 'read', 'read', 'release', 'promote', 'upload', 'arrive'),
  some(3, 'step', 'failRead', 'failUpload'),
)

interface Tested {
  readonly policy: PolicyName
  readonly poolSlots: number
  readonly pools: number
  readonly memorySlots: number
  readonly bytesPerStep: number
  readonly actions: readonly Action[]
}

const anyTiers = (policy: PolicyName): fc.Arbitrary<Tested> =>
  fc.record({
    policy: fc.constant(policy),
    poolSlots: fc.nat(4),
    pools: fc.integer({ min: 1, max: layers }),
    memorySlots: fc.integer({ min: 1, max: 9 }),
    bytesPerStep: fc.constantFrom(0, 50, 100, 250),
    actions: fc.array(action, { maxLength: 250, size: 'max' }),
  })

/** Like `expect`, at no cost while all is well. */
function must(isWell: boolean, otherwise: string): void {
  if (!isWell) throw new Error(otherwise)
}

/** Does as an engine would, in any order, and checks after each action what must hold. Returns a log of all decisions. */
function play({ policy, poolSlots, pools, memorySlots, bytesPerStep, actions }: Tested): string[] {
  const poolOfLayer = Array.from({ length: layers }, (_, layer) => Math.floor((layer * pools) / layers))
  const shape: TierShape = { layers, experts, expertBytes, poolOfLayer, poolSlots, memorySlots, policy }
  const tiers = new ExpertTiers(shape, { bytesPerStep, usesToPay: 0.1 })
  tiers.beginStep()
  const log: string[] = []
  const held: { layer: number; expert: number; place: Place }[] = [] // pinned
  const reading: { layer: number; expert: number; slot: number; isHeld: boolean }[] = [] // into memory
  const moving: Promotion[] = []
  const bringing: { layer: number; expert: number; slot: number }[] = []
  const wantedInStep = new Set<string>()
  let upInStep = 0

  const everywhere = () => {
    const found: { layer: number; expert: number; gpu: number; memory: number }[] = []
    for (let layer = 0; layer < layers; layer++) {
      for (let expert = 0; expert < experts; expert++) {
        const gpu = tiers.gpu.slotOf(layer, expert)
        found.push({ layer, expert, gpu, memory: tiers.memory.slotOf(layer, expert) })
      }
    }
    return found
  }
  /** Copies in memory that could go now. */
  const spareCopies = () =>
    everywhere().filter(
      ({ gpu, memory }) =>
        gpu >= 0 &&
        tiers.gpu.isReady(gpu) &&
        !tiers.gpu.isOffered(gpu) &&
        memory >= 0 &&
        tiers.memory.isReady(memory) &&
        !tiers.memory.isPinned(memory),
    )
  /** Runs what may take a slot in memory: nobody is lost while somebody is there twice. */
  const takeInMemory = (take: () => number): number => {
    const before = everywhere()
    const copies = spareCopies()
    const hadRoom = tiers.memory.slotsUsed < tiers.memory.slots
    const slot = take()
    const gone = before.filter(({ layer, expert, memory }) => memory >= 0 && tiers.memory.slotOf(layer, expert) < 0)
    if (slot >= 0 && hadRoom) expect(gone).toEqual([])
    for (const { gpu } of gone) {
      must(copies.length === 0 || (gpu >= 0 && tiers.gpu.isReady(gpu)), 'one was lost while another is held twice')
    }
    return slot
  }

  for (const step of actions) {
    if (step.kind === 'want') {
      const { layer, expert } = step
      // The engine asks once per layer and step, and waits for what it asked for already.
      if (
        wantedInStep.has(`${layer}:${expert}`) ||
        reading.some(read => read.layer === layer && read.expert === expert)
      )
        continue
      wantedInStep.add(`${layer}:${expert}`)
      const place = tiers.want(layer, expert)
      log.push(`${layer}:${expert} ${place.tier} ${place.slot}`)
      if (place.tier !== 'disk') {
        held.push({ layer, expert, place })
      } else {
        const isComing = tiers.gpu.slotOf(layer, expert) >= 0
        if (isComing) continue // brought for a prompt: the engine waits for that
        const slot = takeInMemory(() => tiers.claim(layer, expert))
        log.push(`claim ${slot}`)
        if (slot >= 0) reading.push({ layer, expert, slot, isHeld: true })
      }
    } else if (step.kind === 'bring') {
      const { layer, expert } = step
      if (tiers.gpu.slotOf(layer, expert) >= 0 || reading.some(read => read.layer === layer && read.expert === expert))
        continue
      const slot = tiers.bring(layer, expert)
      log.push(`bring ${layer}:${expert} ${slot}`)
      if (slot >= 0) bringing.push({ layer, expert, slot })
    } else if (step.kind === 'step') {
      tiers.beginStep()
      wantedInStep.clear()
      upInStep = 0
    } else if (step.kind === 'promote') {
      const next = tiers.promotion()
      if (next === null) continue
      log.push(`up ${next.layer}:${next.expert} ${next.from} → ${next.slot}`)
      expect(wantedInStep).toContain(`${next.layer}:${next.expert}`)
      upInStep += expertBytes
      expect(upInStep).toBeLessThanOrEqual(Math.max(bytesPerStep, expertBytes))
      moving.push(next)
    } else if (step.kind === 'upload' || step.kind === 'failUpload') {
      const [move] = moving.splice(step.pick % Math.max(1, moving.length), 1)
      if (!move) continue
      if (step.kind === 'failUpload') {
        tiers.notPromoted(move)
        expect(tiers.placeOf(move.layer, move.expert)).toEqual({ tier: 'memory', slot: move.from })
        continue
      }
      tiers.promoted(move)
      expect(tiers.placeOf(move.layer, move.expert)).toEqual({ tier: 'gpu', slot: move.slot })
      const { left } = move
      if (left === null) continue
      const slot = takeInMemory(() => tiers.refill(left))
      log.push(`refill ${slot}`)
      if (slot >= 0) reading.push({ ...left, slot, isHeld: false })
    } else if (step.kind === 'arrive') {
      const [arrived] = bringing.splice(step.pick % Math.max(1, bringing.length), 1)
      if (!arrived) continue
      if (step.pick % 5 === 0) {
        tiers.notBrought(arrived.slot)
        continue
      }
      tiers.brought(arrived.slot)
      held.push({ ...arrived, place: { tier: 'gpu', slot: arrived.slot } })
    } else if (step.kind === 'read' || step.kind === 'failRead') {
      const [read] = reading.splice(step.pick % Math.max(1, reading.length), 1)
      if (!read) continue
      const { layer, expert, slot, isHeld } = read
      if (step.kind === 'failRead') {
        tiers.memory.failed(slot)
        if (isHeld) tiers.memory.unpin(slot)
        continue
      }
      tiers.memory.filled(slot)
      if (isHeld) held.push({ layer, expert, place: { tier: 'memory', slot } })
    } else if (step.kind === 'release') {
      const [freed] = held.splice(step.pick % Math.max(1, held.length), 1)
      if (freed) tiers.release(freed.place)
    }

    const all = everywhere()
    const inMemory = all.filter(({ memory }) => memory >= 0)
    must(new Set(inMemory.map(({ memory }) => memory)).size === inMemory.length, 'two experts in one slot of memory')
    must(inMemory.length === tiers.memory.slotsUsed, 'slots of memory are counted wrong')
    must(inMemory.length <= memorySlots, 'past the budget of memory')
    const onGpu = all.filter(({ gpu }) => gpu >= 0)
    must(new Set(onGpu.map(({ gpu }) => gpu)).size === onGpu.length, 'two experts in one slot of the GPU')
    must(onGpu.length === tiers.gpu.slotsUsed, 'slots of the GPU are counted wrong')
    for (const { layer, gpu } of onGpu) {
      must(Math.floor(gpu / poolSlots) === poolOfLayer[layer], "an expert is not in its layer's pool")
    }
    for (const { gpu, memory } of inMemory) {
      const isTwice = gpu >= 0 && tiers.gpu.isReady(gpu) && !tiers.gpu.isOffered(gpu)
      must(tiers.memory.isOffered(memory) === isTwice, 'a copy is kept like others, or another goes first')
    }
    for (const { layer, expert, place } of held) {
      const cache = place.tier === 'gpu' ? tiers.gpu : tiers.memory
      must(cache.slotOf(layer, expert) === place.slot && cache.isReady(place.slot), 'a pinned expert lost its place')
    }
    const lost = [
      ...reading.filter(({ layer, expert, slot }) => tiers.memory.slotOf(layer, expert) !== slot),
      ...bringing.filter(({ layer, expert, slot }) => tiers.gpu.slotOf(layer, expert) !== slot),
      ...moving.filter(({ layer, expert, slot }) => tiers.gpu.slotOf(layer, expert) !== slot),
      ...moving.filter(({ layer, expert, from }) => tiers.memory.slotOf(layer, expert) !== from),
    ]
    must(lost.length === 0, 'an expert on its way lost its place')
  }
  // When all has ended, nothing is pinned and nothing is lost: every slot can be taken again.
  for (const { slot } of reading) tiers.memory.filled(slot)
  for (const { slot, isHeld } of reading) if (isHeld) tiers.memory.unpin(slot)
  for (const move of moving) tiers.promoted(move)
  for (const { slot } of bringing) {
    tiers.brought(slot)
    tiers.release({ tier: 'gpu', slot })
  }
  for (const { place } of held) tiers.release(place)
  for (const cache of [tiers.memory, tiers.gpu]) {
    for (let slot = 0; slot < cache.slots; slot++) must(!cache.isPinned(slot), 'a slot stays pinned')
  }
  return log
}

describe.each(['lrfu', 'lru'] as const)('tiers with %s', policy => {
  test('keep bijections and budgets, hold nobody twice while somebody goes, and never take a place that is in use', () => {
    fc.assert(
      fc.property(anyTiers(policy), tested => void play(tested)),
      { numRuns: 100 },
    )
  })

  test('replay to the same decisions', () => {
    fc.assert(
      fc.property(anyTiers(policy), tested => void expect(play(tested)).toEqual(play(tested))),
      { numRuns: 20 },
    )
  })

  test('without a GPU count what the streamer counts', () => {
    fc.assert(
      fc.property(anyTrace, fc.integer({ min: 3, max: 40 }), (trace, memorySlots) => {
        const rules = { bytesPerStep: 1000, usesToPay: 1, uploadFromTokens: 2 }
        const { all } = simulateTiers(trace, policy, { gpuSlots: 0, memorySlots }, rules)
        const { hits, misses } = simulateTrace(trace, policy, memorySlots)
        expect({ hits: all.memory, misses: all.disk }).toEqual({ hits, misses })
        expect(all).toMatchObject({ gpu: 0, promotions: 0, uploads: 0, refills: 0 })
      }),
      { numRuns: 100 },
    )
  })
})

const anyTrace = fc
  .record({
    layers: fc.integer({ min: 1, max: 4 }),
    experts: fc.integer({ min: 4, max: 10 }),
    expertsPerToken: fc.integer({ min: 1, max: 3 }),
    stepTokens: fc.array(fc.constantFrom(1, 1, 1, 1, 6), { minLength: 1, maxLength: 40 }),
    skew: fc.constantFrom(0, 0.8, 1.5),
    seed: fc.nat(),
  })
  .map(randomTrace)

describe('tiers', () => {
  const make = (poolSlots: number, memorySlots: number, usesToPay = 0) =>
    new ExpertTiers(
      { layers: 1, experts: 16, expertBytes, poolOfLayer: [0], poolSlots, memorySlots, policy: 'lrfu' },
      { bytesPerStep: expertBytes, usesToPay },
    )
  const use = (tiers: ExpertTiers, expert: number): Place => {
    const place = tiers.want(0, expert)
    if (place.tier !== 'disk') {
      tiers.release(place)
      return place
    }
    const slot = tiers.claim(0, expert)
    tiers.memory.filled(slot)
    tiers.memory.unpin(slot)
    return place
  }
  const tierOf = (tiers: ExpertTiers, expert: number) => tiers.placeOf(0, expert).tier
  const up = (tiers: ExpertTiers) => {
    const move = tiers.promotion()
    if (move) tiers.promoted(move)
    return move
  }

  test('leave a copy below, which is the first to go', () => {
    const tiers = make(1, 2)
    tiers.beginStep()
    use(tiers, 1)
    expect(up(tiers)).toMatchObject({ expert: 1, left: null })
    expect([tierOf(tiers, 1), tiers.memory.slotsOffered(0)]).toEqual(['gpu', 1])
    use(tiers, 2)
    use(tiers, 3) // takes the place of the copy: three experts in three slots
    expect([1, 2, 3].map(expert => tierOf(tiers, expert))).toEqual(['gpu', 'memory', 'memory'])
    expect(tiers.memory.slotsOffered(0)).toBe(0)
  })

  test('exchange two experts, the one who left being read into the place of the one who came', () => {
    const tiers = make(1, 2)
    tiers.beginStep()
    use(tiers, 1)
    up(tiers)
    for (let step = 0; step < 3; step++) {
      tiers.beginStep()
      use(tiers, 2)
      use(tiers, 3)
    }
    tiers.beginStep()
    use(tiers, 2)
    const move = up(tiers)
    expect(move).toMatchObject({ expert: 2, left: { layer: 0, expert: 1 } })
    expect(tierOf(tiers, 1)).toBe('disk')
    expect(tiers.refill({ layer: 0, expert: 1 })).toBe(move?.from)
    expect([1, 2, 3].map(expert => tierOf(tiers, expert))).toEqual(['memory', 'gpu', 'memory'])
    expect(tiers.memory.isReady(move?.from as number)).toBe(false)
    expect(tiers.refill({ layer: 0, expert: 1 })).toBe(-1) // not twice
  })

  test('serve from memory what is on its way up, and leave its place alone while it is used there', () => {
    const tiers = make(1, 2)
    tiers.beginStep()
    use(tiers, 1)
    up(tiers)
    tiers.beginStep()
    use(tiers, 2)
    use(tiers, 3) // the copy of 1 is gone
    tiers.beginStep()
    use(tiers, 2)
    const move = tiers.promotion() as Promotion
    expect(move).toMatchObject({ expert: 2, left: { expert: 1 } })
    const place = tiers.want(0, 2)
    expect(place).toEqual({ tier: 'memory', slot: move.from })
    tiers.promoted(move)
    expect(tiers.refill({ layer: 0, expert: 1 })).toBe(-1) // a processor computes with it, and 3 is no copy
    tiers.release(place)
    expect(tiers.refill({ layer: 0, expert: 1 })).toBe(move.from)
  })

  test('take back the place of a copy when its twin leaves the GPU', () => {
    const tiers = make(1, 4)
    tiers.beginStep()
    use(tiers, 1)
    up(tiers)
    tiers.beginStep()
    use(tiers, 2)
    tiers.beginStep()
    use(tiers, 2)
    const move = up(tiers) as Promotion
    expect(move.left).toEqual({ layer: 0, expert: 1 })
    expect(tierOf(tiers, 1)).toBe('memory')
    expect(tiers.refill({ layer: 0, expert: 1 })).toBe(-1) // it is there
    expect(tiers.memory.isOffered(tiers.memory.slotOf(0, 1))).toBe(false)
    expect(tiers.memory.isOffered(tiers.memory.slotOf(0, 2))).toBe(true)
  })

  test('move only what pays, and only as much as the bus may carry beside a step', () => {
    const tiers = make(2, 8, 20)
    tiers.beginStep()
    for (const expert of [1, 2, 3, 4]) use(tiers, expert)
    expect(up(tiers)).toMatchObject({ left: null })
    expect(up(tiers)).toBeNull() // one expert per step
    tiers.beginStep()
    use(tiers, 2)
    expect(up(tiers)).toMatchObject({ left: null })
    expect(tiers.counters.promotions).toBe(2)
    let steps = 0
    for (; steps < 100; steps++) {
      tiers.beginStep()
      use(tiers, 3)
      const move = up(tiers)
      if (move) break
    }
    // 3 is used in every step and 1 no more: 20 uses are won soon, not at once.
    expect(steps).toBeGreaterThan(0)
    expect(steps).toBeLessThan(30)
    expect(tierOf(tiers, 3)).toBe('gpu')
    expect(up(tiers)).toBeNull()
    expect(tiers.promotion(true)).toBeNull() // idle or not, nothing else pays
  })

  test('fill an empty GPU past the budget of a step when nothing else is done', () => {
    const tiers = make(3, 8)
    tiers.beginStep()
    for (const expert of [1, 2, 3, 4]) use(tiers, expert)
    expect(up(tiers)).not.toBeNull()
    expect(up(tiers)).toBeNull()
    for (const _ of [2, 3]) tiers.promoted(tiers.promotion(true) as Promotion)
    expect(tiers.promotion(true)).toBeNull()
    expect(tiers.gpu.slotsUsed).toBe(3)
    tiers.beginStep()
    for (let i = 0; i < 3; i++) use(tiers, 4)
    expect(up(tiers)).not.toBeNull() // and the next step has its own budget
  })

  test('let a prompt pass through a few slots, and keep on the GPU what is used all the time', () => {
    const tiers = make(8, 2)
    for (let step = 0; step < 30; step++) {
      tiers.beginStep()
      for (let expert = 0; expert < 8; expert++) {
        const slot = tiers.want(0, expert).tier === 'disk' ? tiers.bring(0, expert) : -1
        if (slot >= 0) tiers.brought(slot)
        tiers.release(tiers.placeOf(0, expert))
      }
    }
    tiers.beginStep()
    for (let expert = 8; expert < 16; expert++) {
      expect(tiers.want(0, expert).tier).toBe('disk')
      const slot = tiers.bring(0, expert)
      tiers.brought(slot)
      tiers.release({ tier: 'gpu', slot })
    }
    const onGpu = Array.from({ length: 16 }, (_, expert) => tierOf(tiers, expert) === 'gpu')
    expect(onGpu.slice(0, 8).filter(Boolean)).toHaveLength(7)
    expect(onGpu.slice(8)).toEqual([false, false, false, false, false, false, false, true])
    expect(tiers.counters.uploads).toBe(16)
  })
})

describe('experts that a prompt brings', () => {
  test('take the slots of those whom nobody ever used, and stay there', () => {
    const shape = { layers: 1, experts: 32, expertBytes, poolOfLayer: [0], poolSlots: 16, memorySlots: 16 } as const
    const tiers = new ExpertTiers({ ...shape, policy: 'lrfu' }, { bytesPerStep: 0, usesToPay: 4 })
    for (let expert = 0; expert < 16; expert++) tiers.gpu.filled(tiers.fillGpu({ layer: 0, expert }))
    for (let expert = 16; expert < 32; expert++) tiers.memory.filled(tiers.fillMemory({ layer: 0, expert }))
    tiers.beginStep()
    for (let expert = 16; expert < 28; expert++) {
      const place = tiers.want(0, expert)
      const slot = tiers.bring(0, expert)
      expect(slot).toBeGreaterThanOrEqual(0)
      tiers.brought(slot)
      tiers.release(place)
      tiers.release({ tier: 'gpu', slot })
    }
    for (let expert = 16; expert < 28; expert++) expect(tiers.placeOf(0, expert).tier).toBe('gpu')
    expect(tiers.displaced).toHaveLength(12)
    for (const name of tiers.displaced) {
      expect(tiers.isHeld(name.layer, name.expert)).toBe(false)
      expect(tiers.fillMemory(name), 'in the place of a copy').toBeGreaterThanOrEqual(0)
    }
  })
})

describe('a replay of tiers', () => {
  test('equals that of an oracle that looks through everything, decision by decision', () => {
    const sizes = fc.record({
      gpuSlots: fc.nat(20),
      memorySlots: fc.integer({ min: 3, max: 20 }),
      pools: fc.integer({ min: 1, max: 3 }),
    })
    const rules = fc.record({
      bytesPerStep: fc.constantFrom(0, 50, 100, 300),
      usesToPay: fc.constantFrom(0, 2, 10),
      uploadFromTokens: fc.constantFrom(1, 2, 3, 1e9),
      fillsPerStep: fc.constantFrom(0, 1, 3),
    })
    fc.assert(
      fc.property(anyTrace, sizes, rules, (trace, size, rule) => {
        const shape = tierShape(trace, 'lrfu', { ...size, pools: Math.min(size.pools, trace.layers) })
        const tiers = new ExpertTiers(shape, rule)
        const oracle = new NaiveTiers(shape, rule)
        for (const step of trace.steps) {
          replayStep(tiers, trace, step, rule)
          const wanted = Array.from({ length: trace.layers }, (_, layer) =>
            tokensOfExperts(step, layer, trace.expertsPerToken),
          )
          oracle.step(wanted, step.tokens > 1 ? rule.uploadFromTokens : Number.POSITIVE_INFINITY)
          expect(tiers.counters).toEqual(oracle.counters)
          const places = Array.from({ length: trace.layers * trace.experts }, (_, key) => {
            const [layer, expert] = [Math.floor(key / trace.experts), key % trace.experts]
            const gpu = tiers.gpu.slotOf(layer, expert) >= 0
            const memory = tiers.memory.slotOf(layer, expert) >= 0
            return gpu && memory ? 'B' : gpu ? 'G' : memory ? 'M' : '.'
          })
          expect(places.join('')).toBe(oracle.picture)
        }
      }),
      { numRuns: 400 },
    )
  })
})

describe('slots that were filled before anybody asked', () => {
  const shape: TierShape = {
    layers: 1,
    experts: 6,
    expertBytes,
    poolOfLayer: [0],
    poolSlots: 2,
    memorySlots: 4,
    policy: 'lrfu',
  }

  test('go to whoever is used twice, at no price', () => {
    const tiers = new ExpertTiers(shape, { bytesPerStep: 0, usesToPay: 1000, fillsPerStep: 1 })
    for (const expert of [5, 4]) tiers.gpu.filled(tiers.fillGpu({ layer: 0, expert }))
    expect(tiers.fillGpu({ layer: 0, expert: 3 })).toBe(-1) // no empty one is left
    for (const expert of [0, 1, 2]) tiers.memory.filled(tiers.fillMemory({ layer: 0, expert }))
    const useAndPromote = (expert: number) => {
      tiers.beginStep()
      tiers.release(tiers.want(0, expert))
      const promotion = tiers.promotion()
      if (promotion !== null) tiers.promoted(promotion)
      return promotion?.left ?? null
    }
    expect([0, 1, 2].map(useAndPromote)).toEqual([null, null, null]) // once, by chance
    expect([4, 5]).toContain(useAndPromote(0)?.expert)
    expect([4, 5]).toContain(useAndPromote(1)?.expert)
    expect(useAndPromote(2)).toBeNull() // the others are in use: now a move must pay
  })
})
