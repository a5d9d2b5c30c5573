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
