// Reads ahead in a prompt. A chunk of many tokens that wants most of one layer's experts wants most of the next layer's
// too, so nobody has to be guessed: they are read one after the other while the present layer computes and the next one's
// attention does. Takes nothing from the present layer: it begins when all of that layer's experts have slots, and it takes
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
  private expert = 0 // the next to be read

  constructor(
    private readonly slots: LayerSlots,
    private readonly options: LayerAheadOptions,
  ) {}

  /** Whether a chunk that wants so many experts of a layer wants most of the next. */
  wantsMost(wanted: number): boolean {
    return wanted >= LEAST_WANTED * this.options.experts
  }

  /** The layer's turn is next. */
  begin(layer: number): void {
    this.layer = layer < this.options.layers ? layer : -1
    this.expert = 0
  }

  /** Asks for as much as may be under way. To be called whenever a read has ended or slots have become free. */
  goOn(): void {
    const { slots } = this
    const { experts, most } = this.options
    while (this.layer >= 0 && this.expert < experts && slots.isServed) {
      if (!slots.has(this.layer, this.expert)) {
        if (slots.readingAhead >= most || !slots.readNext(this.layer, this.expert)) return
      }
      this.expert++
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
