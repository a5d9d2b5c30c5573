// Reads experts before their layer asks for them, by guesses, as far as guesses of that kind have come true of late. Those
// that come true less often wait, and are read when the disk would have nothing to do. Keeps what was guessed for each
// layer until that layer's choice is known. Where guesses come from is the backend's business: the routers of the layers
// ahead, run early, or what the token before chose. Moves no bytes itself.
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

/**
 * Which guesses about coming layers are worth a read. A guess is of a kind: who made it (the router of a layer so many
 * layers ahead, the token before), and at which rank it put the expert. For each kind the share that came true of late
 * is known, also of guesses that nobody acted on, so a kind that becomes good is trusted again without a trial. Only
 * guesses of experts that were not in memory count: the others are easy to guess and cost nothing. Pure.
 */
const MEMORY = 64 // guesses of a kind that the estimate remembers, about
const FIRST_RATE = 0.75 // before anything was seen

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

// Reads ahead in a prompt. A chunk of many tokens that wants most of one layer's experts wants most of the next layer's
// too, so nobody has to be guessed; of one that wants fewer, guesses are told. They are read one after the other while the
// present layer computes and the next one's attention does. Takes nothing from the present layer: it begins when all of that layer's experts have slots, and it takes
// the slots that the next layer would get in its turn. Moves no bytes itself.

/** The share of a layer's experts that must have been wanted: with 0.8 up to 30% more is read, with 0.9 half of that. */
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

// How many of a prompt's tokens picked which expert. Pure.

/** expert → tokens; adds to `counts` where there are some. */
export function countPicks(picks: Iterable<number>, counts = new Map<number, number>()): Map<number, number> {
  for (const expert of picks) counts.set(expert, (counts.get(expert) ?? 0) + 1)
  return counts
}

/** The experts, the most picked first. */
export function mostPicked(counts: ReadonlyMap<number, number>): number[] {
  return [...counts].sort((a, b) => b[1] - a[1]).map(([expert]) => expert)
}

/**
 * Whether a disk keeps up with prompts by itself, so that reading ahead would be work for nothing. For the first layer of a
 * chunk nobody reads ahead: what it waits for its experts tells, for the layers after it and for the next chunk. Pure.
 */
const LEAST_STALL = 0.002 // seconds of a layer

interface Counts {
  readonly stallSeconds: number
  readonly expertMisses: number
}

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
