// Which experts to read before their layer asks for them: predicted ones in decode
// (ReadAhead, GuessTrust), the next layer's in prefill (LayerAhead, PromptStalls).
// Backends make the predictions: from the routers of coming layers, run early, or from the choice
// of the token before. Reads nothing itself.

const LITTLE = 4 // experts under way: with fewer the disk is soon idle

export interface GuessedSlots {
  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean
  /** Begins to read an expert, unless too much is under way. */
  prefetch(layer: number, expert: number): void
  readonly reading: number // experts under way
}

interface ReadAheadOptions {
  readonly layers: number
  readonly experts: number // per layer
  readonly k: number
  readonly sources: number // of guesses
  readonly least: number // share of a kind of guess that must come true
  readonly leastSpare: number // the same for reads by a disk that is idle otherwise
}

interface Guess {
  readonly source: number
  readonly rank: number
  readonly expert: number
}

/**
 * Prefetches predicted experts, as far as predictions of that kind were right recently. Less
 * reliable ones wait, and are read when the disk would be idle. Keeps the predictions for a layer
 * until that layer's choice is known.
 */
export class ReadAhead {
  readonly trust: GuessTrust
  private readonly open: Guess[][] // [layers], guesses of experts that were not in a slot
  private readonly spare = new Map<number, number>() // layer * experts + expert → the share that comes true

  constructor(
    private readonly slots: GuessedSlots,
    private readonly options: ReadAheadOptions,
  ) {
    this.open = Array.from({ length: options.layers }, () => [])
    this.trust = new GuessTrust(options.sources, options.k, options.least)
  }

  get sources(): number {
    return this.options.sources
  }

  /** What a source thinks that a layer will choose: [tokens, K], each token's best first. */
  guess(layer: number, source: number, choice: ArrayLike<number>): void {
    const { k } = this.options
    for (let rank = 0; rank < k; rank++) {
      for (let at = rank; at < choice.length; at += k) this.consider(layer, { source, rank, expert: choice[at] })
    }
  }

  /** Whether something is to be learned from the layer's choice. */
  isOpen(layer: number): boolean {
    return this.open[layer].length > 0
  }

  /** The layer's choice is known. */
  judge(layer: number, chosen: ReadonlySet<number>): void {
    for (const { source, rank, expert } of this.open[layer].splice(0)) {
      this.trust.observe(source, rank, chosen.has(expert))
    }
    const end = (layer + 1) * this.options.experts
    for (const key of this.spare.keys()) if (key < end) this.spare.delete(key)
  }

  /** A step has ended, perhaps before its last layer. */
  forget(): void {
    for (const guesses of this.open) guesses.length = 0
    this.spare.clear()
  }

  /** Reads the best of what is not trusted while little else is under way. */
  readSpare(): void {
    const { experts } = this.options
    while (this.spare.size > 0 && this.slots.reading < LITTLE) {
      const [best] = [...this.spare].reduce((a, b) => (b[1] > a[1] ? b : a))
      this.spare.delete(best)
      this.slots.prefetch(Math.floor(best / experts), best % experts)
    }
  }

  private consider(layer: number, guess: Guess): void {
    const { source, rank, expert } = guess
    if (this.slots.has(layer, expert)) return
    this.open[layer].push(guess)
    if (this.trust.trusts(source, rank)) {
      this.slots.prefetch(layer, expert)
      return
    }
    const rate = this.trust.rate(source, rank)
    if (rate >= this.options.leastSpare) this.spare.set(layer * this.options.experts + expert, rate)
  }
}

const MEMORY = 64 // guesses of a kind that the estimate remembers, about
const FIRST_RATE = 0.75 // before anything was seen

/**
 * Hit rate per kind of prediction: its source (a router so many layers ahead, the token before) and
 * the rank of the expert. Predictions that were not acted on count too, so a kind can regain trust;
 * those of cached experts do not: they are easy, and cost nothing. Pure.
 */
export class GuessTrust {
  private readonly rates: Float64Array // [sources, ranks], the share that came true

  constructor(
    sources: number,
    private readonly ranks: number,
    /** The least share that must come true for a guess to be read. */
    private readonly least: number,
  ) {
    this.rates = new Float64Array(sources * ranks).fill(FIRST_RATE)
  }

  trusts(source: number, rank: number): boolean {
    return this.rate(source, rank) >= this.least
  }

  rate(source: number, rank: number): number {
    return this.rates[source * this.ranks + rank]
  }

  observe(source: number, rank: number, cameTrue: boolean): void {
    const at = source * this.ranks + rank
    this.rates[at] += ((cameTrue ? 1 : 0) - this.rates[at]) / MEMORY
  }
}

/**
 * Share of a layer's experts that must have been used: 0.8 reads up to 30% more, 0.9 half of that.
 */
const LEAST_WANTED = 0.9

export interface LayerSlots {
  /** All experts that the present layer wants are in slots or on their way. */
  readonly isServed: boolean
  readonly readingAhead: number // experts
  has(layer: number, expert: number): boolean
  /** Begins to read an expert into the slot that it would get in its turn. False: that one is not free yet. */
  readNext(layer: number, expert: number): boolean
  /** Takes back reads of a layer that have not begun. */
  callOffLayer(layer: number): void
}

interface LayerAheadOptions {
  readonly layers: number
  readonly experts: number // per layer
  readonly most: number // experts under way at once
}

/**
 * Prefetch for prefill, one expert after the other during the present layer and the next one's
 * attention. A chunk that uses 90% of a layer's experts gets all of the next layer's; any other
 * chunk gets the predicted ones. Takes nothing from the present layer: it begins when all of that
 * layer's experts have slots, and uses the slots that the next layer would get.
 */
export class LayerAhead {
  private layer = -1
  private readonly all: readonly number[]
  private experts: readonly number[] = []
  private next = 0 // of them

  constructor(
    private readonly slots: LayerSlots,
    private readonly options: LayerAheadOptions,
  ) {
    this.all = Array.from({ length: options.experts }, (_, expert) => expert)
  }

  /** Whether a chunk that wants so many experts of a layer wants most of the next. */
  wantsMost(wanted: number): boolean {
    return wanted >= LEAST_WANTED * this.options.experts
  }

  /** The layer's turn is next: these of its experts are to be read, in this order. */
  begin(layer: number, experts = this.all): void {
    this.layer = layer < this.options.layers ? layer : -1
    this.experts = experts
    this.next = 0
  }

  /** Asks for as much as may be under way. To be called whenever a read has ended or slots have become free. */
  goOn(): void {
    const { slots, layer, experts } = this
    while (layer >= 0 && this.next < experts.length && slots.isServed) {
      const expert = experts[this.next]
      if (!slots.has(layer, expert)) {
        if (slots.readingAhead >= this.options.most || !slots.readNext(layer, expert)) return
      }
      this.next++
    }
  }

  /** The layer's own choice is known. */
  end(): void {
    this.layer = -1
  }

  /** The step is given up. */
  giveUp(): void {
    if (this.layer >= 0) this.slots.callOffLayer(this.layer)
    this.layer = -1
  }
}

/** How many tokens picked which expert; adds to `counts`, if they are given. */
export function countPicks(picks: Iterable<number>, counts = new Map<number, number>()): Map<number, number> {
  for (const expert of picks) counts.set(expert, (counts.get(expert) ?? 0) + 1)
  return counts
}

/** The experts, the most picked first. */
export function mostPicked(counts: ReadonlyMap<number, number>): number[] {
  return [...counts].sort((a, b) => b[1] - a[1]).map(([expert]) => expert)
}

const LEAST_STALL = 0.002 // seconds of a layer

interface Counts {
  readonly stallSeconds: number
  readonly expertMisses: number
}

/**
 * Whether prefill waits for the disk, so that reading ahead pays. Nothing is read ahead for the
 * first layer of a chunk: its stall decides for the layers after it and for the next chunk. Pure.
 */
export class PromptStalls {
  private isSlow = true // until more is known
  private before: Counts | null = null // the first layer's experts were asked for

  /** Whether to read ahead for the layer after this one. `counts`: before this layer asks for its experts. */
  wantsHelp(layer: number, counts: Counts): boolean {
    if (layer === 0) this.before = counts
    else if (layer === 1 && this.before !== null && counts.expertMisses > this.before.expertMisses) {
      this.isSlow = counts.stallSeconds - this.before.stallSeconds >= LEAST_STALL
    }
    return this.isSlow
  }
}
