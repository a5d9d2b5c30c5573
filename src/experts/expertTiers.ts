// Which expert is on the GPU, which in memory, which on disk only, and who moves. A pure bookkeeper above an ExpertCache
// for the GPU and one for memory: it moves no bytes and waits for nothing, so that the engine,
// `moeflux simulate` and tests run the same decisions.
//
//   tiers.beginStep()
//   for each layer, for each expert that its tokens chose:
//     place = tiers.want(layer, expert)         // where it is; pinned there until tiers.release
//     on the GPU: it is computed there. In memory: the processor computes it.
//     on disk: tiers.claim, read, tiers.memory.filled; then as in memory. Of a prompt: or tiers.bring
//   while the bus is free: tiers.promotion → upload → tiers.promoted
//   while the disk is idle: tiers.refill, read, tiers.memory.filled
//
// Exclusive where memory is scarce: who moved up leaves a copy below, and copies are the first to go, so that no expert falls
// to the disk while another one is held twice. Some slots of the GPU are passages: a prompt's experts go through them one after
// the other and keep their places in memory, so that a prompt leaves everybody where he was. Nothing is ever written back: experts do not change, and what leaves the GPU
// without a copy below is read again from the file, into the place that the one who went up has left. That costs one read
// beside the token; to read it back from the GPU would cost a copy by the thread that leads the token.
//
// Only what was used in the present step moves up, and only where it pays: a move costs an upload and often a read, so the one
// who comes must be used so much more often than the one who leaves that the uses won over the time for which the past tells
// the future outweigh that (`usesToPay`). How many bytes go up beside a step is bounded, too.
import { type PolicyName, UseRates } from './evictionPolicy.js'
import { ExpertCache, type ExpertName } from './expertCache.js'

export type Tier = 'gpu' | 'memory' | 'disk'

export interface TierShape {
  readonly layers: number
  readonly experts: number // per layer
  readonly expertBytes: number
  readonly poolOfLayer: readonly number[] // [layers], which pool of GPU slots serves a layer; ascending from 0
  readonly poolSlots: number // of each pool
  readonly memorySlots: number
  readonly policy: PolicyName
}

export interface PromotionRule {
  /** Bytes that may go up beside a step. */
  readonly bytesPerStep: number
  /** Uses on the GPU instead of the processor that are worth a move: its cost over what one use saves. */
  readonly usesToPay: number
  /** Experts that may go into empty slots of the GPU beside a step, besides: nobody leaves for them. Default 0. */
  readonly fillsPerStep?: number
}

/** A move takes time of the thread that leads the tokens: more of them win less than that (performance-log.md). */
export const DEFAULT_FILLS_PER_STEP = 4

/** Moves beside a token that a full GPU makes at most (performance-log.md). */
export const DEFAULT_MOVES_PER_STEP = 2

const STEPS_BETWEEN_LOOKS = 16
const MOST_PASSAGES = 96 // of all pools: a prompt's experts wait for each other where there are fewer
const LEAST_PASSAGES = 4 // of a pool
const NOBODY_LEAVES = 1e6 // more than anybody is used

export interface Place {
  readonly tier: Tier
  readonly slot: number // of the GPU or of memory; -1 on disk
}

export interface Promotion extends ExpertName {
  readonly from: number // slot in memory, pinned until the promotion has ended
  readonly slot: number // on the GPU, in flight
  readonly left: ExpertName | null // who was there before
}

export interface TierCounters {
  gpu: number // wanted, and found there
  memory: number
  disk: number
  promotions: number
  uploads: number // of experts that many tokens of a prompt wanted
  refills: number // reads of experts that had left the GPU
}

/** Slots of a pool that a prompt's experts pass through: theirs are held twice. */
export function passagesOf(poolSlots: number, pools: number): number {
  const most = Math.max(LEAST_PASSAGES, Math.ceil(MOST_PASSAGES / pools))
  return Math.max(1, Math.min(poolSlots >> 3, most))
}

export class ExpertTiers {
  readonly gpu: ExpertCache
  readonly memory: ExpertCache
  /** Experts that had to leave the GPU for a prompt's. Perhaps nowhere now. */
  readonly displaced: ExpertName[] = []
  readonly counters: TierCounters = { gpu: 0, memory: 0, disk: 0, promotions: 0, uploads: 0, refills: 0 }
  private readonly rates: UseRates
  private readonly leastGain: number // uses per step that a move must win
  private readonly leastUses: number // the same where the one who leaves was never used: more than one
  private readonly mostPassing: number // slots of a pool that a prompt's experts may pass through
  private readonly passingRate: Float64Array // [pools], of the one who would have to leave for one who stays
  private readonly candidates: number[] = [] // layer * experts + expert: used in this step, and not on the GPU
  private readonly mayHaveFillers: Uint8Array // [pools], 0: there are none for sure
  private readonly bestKeys: Int32Array // [pools], of a promotion
  private readonly bestRates: Float64Array // [pools]
  private readonly isNoPassage = (slot: number) => !this.gpu.isOffered(slot)
  private credit = 0 // bytes that may go up now
  private fills = 0 // experts that may go into empty slots now

  constructor(
    readonly shape: TierShape,
    private readonly rule: PromotionRule,
    options: {
      /** Of the GPU's slots, where bytes take the way of such. */
      readonly stagingBuffers?: number
    } = {},
  ) {
    const { layers, experts, expertBytes, policy, poolOfLayer, poolSlots, memorySlots } = shape
    this.rates = new UseRates(layers * experts)
    this.leastGain = rule.usesToPay / this.rates.memorySteps
    this.leastUses = 1.5 * this.rates.steadyPerUse
    const pools = 1 + Math.max(...poolOfLayer)
    const common = { layers, experts, expertBytes, policy }
    const gpuOptions = { rates: this.rates, stagingBuffers: options.stagingBuffers }
    this.gpu = new ExpertCache({ ...common, slots: pools * poolSlots, poolOfLayer }, gpuOptions)
    this.memory = new ExpertCache({ ...common, slots: memorySlots }, { rates: this.rates })
    this.mostPassing = passagesOf(poolSlots, pools)
    this.passingRate = new Float64Array(pools)
    this.mayHaveFillers = new Uint8Array(pools)
    this.bestKeys = new Int32Array(pools)
    this.bestRates = new Float64Array(pools)
  }

  /** Where the expert can be used. On its way to the GPU it is still in memory; on its way to memory it is there, not ready. */
  placeOf(layer: number, expert: number): Place {
    const slot = this.gpu.slotOf(layer, expert)
    if (slot >= 0 && this.gpu.isReady(slot)) return { tier: 'gpu', slot }
    const below = this.memory.slotOf(layer, expert)
    return below >= 0 ? { tier: 'memory', slot: below } : { tier: 'disk', slot: -1 }
  }

  beginStep(): void {
    this.rates.tick()
    this.candidates.length = 0
    if (this.rates.step % STEPS_BETWEEN_LOOKS === 0) {
      for (const [pool, may] of this.mayHaveFillers.entries()) {
        if (may === 1) this.mayHaveFillers[pool] = this.hasFillers(pool) ? 1 : 0
      }
    }
    // What a step left is not saved up for a burst, but half an expert a step gives one every other step.
    const { bytesPerStep, fillsPerStep = 0 } = this.rule
    this.fills = fillsPerStep
    this.credit = Math.min(this.credit + bytesPerStep, Math.max(bytesPerStep, this.shape.expertBytes))
  }

  /** Tokens of the step chose this expert: where it is. It stays there until it is released. */
  want(layer: number, expert: number): Place {
    const slot = this.gpu.slotOf(layer, expert)
    if (slot >= 0 && this.gpu.isReady(slot)) {
      this.counters.gpu++
      return { tier: 'gpu', slot: this.wantOnGpu(layer, expert) }
    }
    const below = this.wantBelow(layer, expert)
    return below >= 0 ? { tier: 'memory', slot: below } : { tier: 'disk', slot: -1 }
  }

  /** The same of an expert that is not on the GPU, perhaps on its way there: its slot in memory, -1 on disk. */
  wantBelow(layer: number, expert: number): number {
    this.candidates.push(layer * this.shape.experts + expert)
    const slot = this.memory.want(layer, expert)
    this.counters[slot < 0 ? 'disk' : 'memory']++
    return slot
  }

  /** The slot of an expert that is on the GPU or on its way there, pinned; else -1. Who passes through still does. */
  wantOnGpu(layer: number, expert: number): number {
    const at = this.gpu.slotOf(layer, expert)
    const passes = at >= 0 && this.gpu.isOffered(at)
    const slot = this.gpu.want(layer, expert)
    if (!passes) return slot
    this.gpu.offer(slot, true)
    const below = this.memory.slotOf(layer, expert)
    if (below >= 0) this.memory.rated(below)
    return slot
  }

  /** Tokens of the step have used this expert on the GPU. It may have left meanwhile: commands are carried out later. */
  usedOnGpu(layer: number, expert: number): void {
    this.counters.gpu++
    const slot = this.wantOnGpu(layer, expert)
    if (slot >= 0) this.gpu.unpin(slot)
    else this.rates.used(layer * this.shape.experts + expert)
  }

  /** A slot in memory, pinned and in flight, for a wanted expert that is on disk; -1 where no slot may be emptied now. */
  claim(layer: number, expert: number): number {
    return this.memory.claim(layer, expert)
  }

  release({ tier, slot }: Place): void {
    if (tier === 'gpu') this.gpu.unpin(slot)
    else if (tier === 'memory') this.memory.unpin(slot)
  }

  /**
   * A slot on the GPU, pinned and in flight, for a wanted expert of so many tokens that it is worth its upload at once; -1
   * where no slot may be emptied now. It stays if it is used more than the one who leaves. Else it only passes through, in
   * a place that the next one takes, and keeps its place in memory: a prompt shall not push out what is used all the time.
   */
  bring(layer: number, expert: number): number {
    const next = this.gpu.slotToTake(layer)
    if (next < 0) return -1
    const left = this.gpu.nameOf(next)
    const isPassage = left !== null && this.gpu.isOffered(next)
    const isCounted = this.memory.slotOf(layer, expert) >= 0 // as used, when it was found in memory
    const rate = this.rateOf({ layer, expert }) - (isCounted ? this.rates.steadyPerUse : 0)
    const isVacant = left === null || this.rateOf(left) === 0
    const passes = !isVacant && !this.stays(layer, rate, left, isPassage)
    if (passes && !isPassage && this.gpu.slotsOffered(layer) >= this.mostPassing) return -1
    const slot = isCounted ? this.gpu.claimAhead(layer, expert) : this.gpu.claim(layer, expert)
    if (isCounted) this.gpu.pin(slot)
    this.gpu.offer(slot, passes)
    if (left !== null) this.offerCopy(left, false)
    if (left !== null && !isPassage) this.displaced.push(left)
    this.counters.uploads++
    return slot
  }

  /** What `bring` made a place for is there. */
  brought(slot: number): void {
    this.gpu.filled(slot)
    this.onGpu(slot)
  }

  /** The slot was filled by somebody else: what memory has of its expert is a copy from now on, if it stays. */
  onGpu(slot: number): void {
    const name = { layer: this.gpu.layerOf(slot), expert: this.gpu.expertOf(slot) }
    this.offerCopy(name, !this.gpu.isOffered(slot))
  }

  /** What `bring` made a place for could not be read or sent. */
  notBrought(slot: number): void {
    this.gpu.failed(slot)
    this.gpu.unpin(slot)
  }

  /** What should go up now; null: nothing. `isIdle`: no step is under way that the bus must be shared with. */
  promotion(isIdle = false): Promotion | null {
    const { expertBytes, experts, poolOfLayer, policy } = this.shape
    const mayMove = isIdle || this.credit >= expertBytes
    if (!mayMove && this.fills === 0) return null
    const bestKeys = this.bestKeys.fill(-1)
    const bestRates = this.bestRates.fill(-1)
    for (const key of this.candidates) {
      const pool = poolOfLayer[Math.floor(key / experts)]
      const rate = this.rates.steadyRate(key)
      if ((rate <= bestRates[pool] && policy !== 'lru') || !this.canGoUp(key)) continue
      bestKeys[pool] = key
      bestRates[pool] = rate
    }
    let chosen: (ExpertName & { readonly slot: number }) | null = null
    let most = this.leastGain
    let fills = false
    for (let pool = 0; pool < bestKeys.length; pool++) {
      const key = bestKeys[pool]
      if (key < 0) continue
      const rate = bestRates[pool]
      const name = { layer: Math.floor(key / experts), expert: key % experts }
      // Used so little it cannot win enough, unless nobody has to leave; to ask who would have to is most of the work here.
      const mayBeVacant = this.mayHaveFillers[pool] === 1 || this.gpu.hasEmpty(name.layer)
      if (rate <= most && !mayBeVacant && policy !== 'lru') continue
      const slot = this.gpu.slotToTake(name.layer, this.isNoPassage)
      if (slot < 0) continue
      const left = this.gpu.nameOf(slot)
      // Nobody is there, or somebody whom nobody has ever used; one use does not tell them apart.
      const isVacant = left === null || (this.rateOf(left) === 0 && rate > this.leastUses)
      const isFill = this.fills > 0 && isVacant
      if (!mayMove && !isFill) continue
      // Of those for whom nobody has to leave, who is used most comes first.
      const gain =
        policy === 'lru' ? Number.POSITIVE_INFINITY : isVacant ? NOBODY_LEAVES + rate : rate - this.rateOf(left)
      if (gain <= most) continue
      chosen = { ...name, slot }
      most = gain
      fills = isFill
    }
    if (chosen === null) return null
    if (fills) this.fills--
    else if (!isIdle) this.credit -= expertBytes
    return this.promote(chosen)
  }

  /** The upload has ended well: from now on the expert is found on the GPU. */
  promoted(promotion: Promotion): void {
    this.gpu.filled(promotion.slot)
    this.moved(promotion, true)
  }

  /** The upload has failed: the expert stays where it was. */
  notPromoted(promotion: Promotion): void {
    this.gpu.calledOff(promotion.slot)
    this.moved(promotion, false)
  }

  /** A promotion is over, and its slot on the GPU was filled or emptied by whoever reads into slots. */
  moved(promotion: Promotion, isThere: boolean): void {
    this.memory.unpin(promotion.from)
    if (isThere) this.offerCopy(promotion, true)
  }

  /**
   * A slot in memory, in flight, for an expert that has left the GPU: to be read when the disk has nothing else to do. Takes
   * an empty slot or that of a copy, as the one who came left below. -1: there is none, or the expert is held somewhere.
   */
  refill(name: ExpertName): number {
    const slot = this.fillMemory(name)
    if (slot >= 0) this.counters.refills++
    return slot
  }

  /** The same for an expert that was nowhere so far. */
  fillMemory({ layer, expert }: ExpertName): number {
    if (this.isHeld(layer, expert)) return -1
    if (!this.memory.hasEmpty(layer) && this.memory.slotsOffered(layer) === 0) return -1
    const slot = this.memory.slotToTake(layer)
    if (slot < 0 || (this.memory.nameOf(slot) !== null && !this.memory.isOffered(slot))) return -1
    return this.memory.claimAhead(layer, expert)
  }

  /**
   * An empty slot on the GPU, in flight, for an expert that was nowhere so far, or in memory if that may be: better anybody
   * there than nobody. -1: none.
   */
  fillGpu({ layer, expert }: ExpertName, mayBeCopy = false): number {
    if (this.gpu.slotOf(layer, expert) >= 0 || !this.gpu.hasEmpty(layer)) return -1
    if (!mayBeCopy && this.memory.slotOf(layer, expert) >= 0) return -1
    this.mayHaveFillers[this.shape.poolOfLayer[layer]] = 1
    return this.gpu.claimAhead(layer, expert)
  }

  /**
   * A slot in memory, in flight, for an expert that may be wanted soon. Nobody who was used of late leaves for it. -1: there
   * is none, or the expert is held somewhere.
   */
  readAhead(layer: number, expert: number): number {
    if (this.isHeld(layer, expert)) return -1
    const slot = this.memory.slotToTake(layer)
    if (slot < 0) return -1
    const left = this.memory.nameOf(slot)
    const isFree = left === null || this.memory.isOffered(slot)
    if (!isFree && this.rates.isFresh(left.layer * this.shape.experts + left.expert)) return -1
    return this.memory.claimAhead(layer, expert)
  }

  /**
   * The same for one of a prompt's next layer that is nearly sure to be wanted. Who leaves for it is a copy, or one whose turn
   * has just been: not one that this pass may still want. `isServed`: nor is one of the present layer wanted any more that
   * is not pinned.
   */
  readNext(layer: number, expert: number, isServed: boolean): number {
    if (this.isHeld(layer, expert)) return -1
    const { memory } = this
    const present = layer - 1
    const last = isServed ? present : present - 1
    const slot = memory.slotToTake(present, at => memory.isOffered(at) || memory.layerOf(at) <= last)
    return slot < 0 ? -1 : memory.claimAhead(layer, expert, slot)
  }

  /** Whether the expert is on the GPU or in memory, or on its way there. */
  isHeld(layer: number, expert: number): boolean {
    return this.gpu.slotOf(layer, expert) >= 0 || this.memory.slotOf(layer, expert) >= 0
  }

  /** Nothing in memory is kept but what is on its way or in use; of the GPU's slots somebody else has said so. */
  forgetMemory(): void {
    for (let slot = 0; slot < this.memory.slots; slot++) {
      const name = this.memory.nameOf(slot)
      if (name === null) continue
      if (this.memory.life.mayEvict(slot)) this.memory.forget(slot)
      else if (this.gpu.slotOf(name.layer, name.expert) < 0) this.memory.offer(slot, false)
    }
  }

  private promote({ layer, expert, slot }: ExpertName & { readonly slot: number }): Promotion {
    const left = this.gpu.nameOf(slot)
    this.gpu.claimAhead(layer, expert, slot)
    if (left !== null) this.offerCopy(left, false)
    const from = this.memory.slotOf(layer, expert)
    this.memory.pin(from)
    this.counters.promotions++
    return { layer, expert, from, slot, left }
  }

  private canGoUp(key: number): boolean {
    const layer = Math.floor(key / this.shape.experts)
    const expert = key % this.shape.experts
    const from = this.memory.slotOf(layer, expert)
    return from >= 0 && this.memory.isReady(from) && this.gpu.slotOf(layer, expert) < 0
  }

  /** Whether experts are there that were put there because nobody was, and were never used. */
  private hasFillers(pool: number): boolean {
    const { poolSlots } = this.shape
    for (let slot = pool * poolSlots; slot < (pool + 1) * poolSlots; slot++) {
      const name = this.gpu.nameOf(slot)
      if (name !== null && this.rateOf(name) === 0) return true
    }
    return false
  }

  /** Whether one that is brought was used more so far than the one who would leave for good. */
  private stays(layer: number, rate: number, left: ExpertName, isPassage: boolean): boolean {
    if (this.shape.policy === 'lru') return true
    const index = this.shape.poolOfLayer[layer]
    if (!isPassage) this.passingRate[index] = this.rateOf(left)
    return rate > this.passingRate[index]
  }

  private rateOf({ layer, expert }: ExpertName): number {
    return this.rates.steadyRate(layer * this.shape.experts + expert)
  }

  /** Whether the place in memory of an expert, if it has one, is only a copy: the same is on the GPU. */
  private offerCopy({ layer, expert }: ExpertName, isCopy: boolean): void {
    const slot = this.memory.slotOf(layer, expert)
    if (slot >= 0) this.memory.offer(slot, isCopy)
  }
}
