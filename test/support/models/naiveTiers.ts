// The decisions of ExpertTiers (policy lrfu) once more, as plainly as possible: a list of all experts, looked through from end
// to end for each question. Shares only the rates with the real one. Reads and uploads take no time.
import { UseRates } from '#moeflux/experts/evictionPolicy.js'
import { type PromotionRule, passagesOf, type TierShape } from '#moeflux/experts/expertTiers.js'

interface Entry {
  readonly layer: number
  readonly expert: number
  readonly key: number
  gpu: boolean
  memory: boolean
  gpuUnusedSince: number // step in which it came there without being used; -1: it was used
  memoryUnusedSince: number
  passing: boolean // on the GPU for its prompt alone
}

export class NaiveTiers {
  readonly counters = { gpu: 0, memory: 0, disk: 0, promotions: 0, uploads: 0, refills: 0 }
  private readonly rates: UseRates
  private readonly all: Entry[]
  private usedOnGpu: Entry[] = [] // by this layer: they may not go
  private usedInMemory: Entry[] = []
  private missed: Entry[] = []
  private readonly displaced: Entry[] = [] // by this layer's
  private credit = 0
  private fills = 0
  private readonly passingRate: number[] // [pools]

  constructor(
    private readonly shape: TierShape,
    private readonly rule: PromotionRule,
  ) {
    const { layers, experts } = shape
    this.rates = new UseRates(layers * experts)
    this.all = Array.from({ length: layers * experts }, (_, key) => ({
      layer: Math.floor(key / experts),
      expert: key % experts,
      key,
      gpu: false,
      memory: false,
      gpuUnusedSince: -1,
      memoryUnusedSince: -1,
      passing: false,
    }))
    this.passingRate = [...new Set(shape.poolOfLayer)].map(() => 0)
  }

  /** One character per expert. */
  get picture(): string {
    return this.all.map(({ gpu, memory }) => (gpu && memory ? 'B' : gpu ? 'G' : memory ? 'M' : '.')).join('')
  }

  step(wanted: readonly ReadonlyMap<number, number>[], uploadFromTokens: number): void {
    this.rates.tick()
    this.missed = []
    const { bytesPerStep, fillsPerStep = 0 } = this.rule
    this.fills = fillsPerStep
    this.credit = Math.min(this.credit + bytesPerStep, Math.max(bytesPerStep, this.shape.expertBytes))
    for (const [layer, experts] of wanted.entries()) this.computeLayer(layer, experts, uploadFromTokens)
    this.forget()
    while (this.promoteOne());
  }

  private computeLayer(layer: number, experts: ReadonlyMap<number, number>, uploadFromTokens: number): void {
    const places = [...experts].map(([expert, tokens]) => {
      const entry = this.all[layer * this.shape.experts + expert]
      const tier = entry.gpu ? 'gpu' : entry.memory ? 'memory' : 'disk'
      this.counters[tier]++
      if (tier === 'gpu') this.useOnGpu(entry)
      else this.missed.push(entry)
      if (tier === 'memory') {
        this.rates.used(entry.key)
        entry.memoryUnusedSince = -1
      }
      return { entry, tokens, tier }
    })
    this.usedOnGpu = places.filter(({ tier }) => tier === 'gpu').map(({ entry }) => entry)
    this.usedInMemory = places.filter(({ tier }) => tier === 'memory').map(({ entry }) => entry)
    for (const { entry, tokens, tier } of places) {
      if (tier === 'gpu') continue
      const uploads = tokens >= uploadFromTokens && this.shape.poolSlots > 0
      if (uploads && (this.bring(entry) || (this.forget() && this.bring(entry)))) continue
      if (tier === 'memory') continue
      if (!this.makeRoomInMemory(layer)) {
        this.forget()
        this.makeRoomInMemory(layer)
      }
      this.rates.used(entry.key)
      entry.memory = true
      entry.memoryUnusedSince = -1
      this.usedInMemory.push(entry)
    }
    this.forget()
    for (let left = this.displaced.pop(); left !== undefined; left = this.displaced.pop()) this.refill(left)
  }

  private forget(): boolean {
    this.usedOnGpu = []
    this.usedInMemory = []
    return true
  }

  private useOnGpu(entry: Entry): void {
    this.rates.used(entry.key)
    entry.gpuUnusedSince = -1
  }

  private makeRoomInMemory(layer: number): boolean {
    const there = this.all.filter(entry => entry.memory)
    if (there.length < this.shape.memorySlots) return true
    const mayGo = there.filter(entry => !this.usedInMemory.includes(entry))
    const victim = this.lastToCome(layer, mayGo, isCopy, 'memoryUnusedSince')
    if (victim) victim.memory = false
    return victim !== null
  }

  /** Who leaves the pool for an expert of this layer; null: nobody needs to; undefined: nobody may. */
  private gpuVictim(layer: number, mayPass = true): Entry | null | undefined {
    const { poolOfLayer, poolSlots } = this.shape
    const there = this.all.filter(entry => entry.gpu && poolOfLayer[entry.layer] === poolOfLayer[layer])
    if (there.length < poolSlots) return null
    const mayGo = there.filter(entry => !this.usedOnGpu.includes(entry) && (mayPass || !entry.passing))
    return this.lastToCome(layer, mayGo, entry => entry.passing, 'gpuUnusedSince') ?? undefined
  }

  private lastToCome(
    layer: number,
    entries: readonly Entry[],
    isFirst: (entry: Entry) => boolean,
    unusedSince: 'gpuUnusedSince' | 'memoryUnusedSince',
  ): Entry | null {
    const { layers } = this.shape
    const rate = (entry: Entry) => {
      const grace = entry[unusedSince] < 0 ? 0 : this.rates.perUse * 2 ** ((entry[unusedSince] - this.rates.step) / 4)
      return isFirst(entry) ? -1 : this.rates.rate(entry.key) + grace
    }
    const ahead = (entry: Entry) => ((entry.layer - layer + layers - 1) % layers) + 1
    const wait = (entry: Entry) =>
      isFirst(entry) ? Number.POSITIVE_INFINITY : 1 / Math.min(1, rate(entry)) - 1 + ahead(entry) / layers
    // The rarest of each layer, and of those the one that is wanted last; among equals the one whose turn is farthest.
    const rarest = Array.from({ length: layers }, (_, index) =>
      entries.filter(entry => entry.layer === index).sort((a, b) => rate(a) - rate(b) || a.key - b.key),
    ).flatMap(sorted => sorted.slice(0, 1))
    rarest.sort((a, b) => ahead(b) - ahead(a))
    let best: Entry | null = null
    for (const entry of rarest) if (best === null || wait(entry) > wait(best)) best = entry
    return best
  }

  private bring(entry: Entry): boolean {
    const { poolOfLayer, poolSlots } = this.shape
    const pool = poolOfLayer[entry.layer]
    const left = this.gpuVictim(entry.layer)
    if (left === undefined) return false
    const rate = this.rates.steadyRate(entry.key) - (entry.memory ? this.rates.steadyPerUse : 0)
    let passes = false
    if (left !== null) {
      const wasUsed = this.rates.steadyRate(left.key) > 0
      if (wasUsed && !left.passing) this.passingRate[pool] = this.rates.steadyRate(left.key)
      passes = wasUsed && rate <= this.passingRate[pool]
      const passing = this.all.filter(other => other.passing && poolOfLayer[other.layer] === pool).length
      if (passes && !left.passing && passing >= passagesOf(poolSlots, this.passingRate.length)) return false
      if (!left.passing) this.displaced.push(left)
      left.gpu = false
      left.passing = false
    }
    this.counters.uploads++
    if (!entry.memory) this.rates.used(entry.key)
    entry.gpuUnusedSince = entry.memory ? this.rates.step : -1
    entry.gpu = true
    entry.passing = passes
    this.usedOnGpu.push(entry)
    return true
  }

  private promoteOne(): boolean {
    const mayMove = this.credit >= this.shape.expertBytes
    const pools = [...new Set(this.shape.poolOfLayer)]
    let best: { entry: Entry; left: Entry | null; gain: number } | null = null
    for (const pool of pools) {
      const here = this.missed.filter(
        ({ layer, memory, gpu }) => this.shape.poolOfLayer[layer] === pool && memory && !gpu,
      )
      let entry: Entry | null = null
      for (const other of here) {
        if (entry === null || this.rates.steadyRate(other.key) > this.rates.steadyRate(entry.key)) entry = other
      }
      const left = entry && this.gpuVictim(entry.layer, false)
      if (entry === null || left === undefined) continue
      if (!mayMove && (left !== null || this.fills === 0)) continue
      const gain =
        left === null
          ? 1e6 + this.rates.steadyRate(entry.key)
          : this.rates.steadyRate(entry.key) - this.rates.steadyRate(left.key)
      if (gain > (best?.gain ?? this.rule.usesToPay / this.rates.memorySteps)) best = { entry, left, gain }
    }
    if (best === null) return false
    const { entry, left } = best
    if (left === null && this.fills > 0) this.fills--
    else this.credit -= this.shape.expertBytes
    this.counters.promotions++
    entry.gpu = true
    entry.gpuUnusedSince = this.rates.step
    if (left !== null) {
      left.gpu = false
      left.passing = false
      this.refill(left)
    }
    return true
  }

  private refill(entry: Entry): void {
    const there = this.all.filter(other => other.memory)
    const copies = there.filter(isCopy)
    const isFull = there.length === this.shape.memorySlots
    if (entry.memory || entry.gpu || (isFull && copies.length === 0)) return
    const victim = isFull && this.lastToCome(entry.layer, copies, () => true, 'memoryUnusedSince')
    if (victim) victim.memory = false
    entry.memory = true
    entry.memoryUnusedSince = this.rates.step
    this.counters.refills++
  }
}

/** In memory only because nobody else wanted the place: who passes through the GPU comes back to it. */
function isCopy({ gpu, memory, passing }: Entry): boolean {
  return gpu && memory && !passing
}
