// A state of a sequence that lives outside any context, with the tokens that made it: what a prefix cache keeps.
import type { HeldState } from '../backends/backend.js'
import { ClosedError } from '../base/errors.js'

/** Any context of the same model can become it, any number of times. */
export class KeptState {
  private released = false

  constructor(
    private readonly state: HeldState,
    readonly tokens: readonly number[],
    readonly logits: Float32Array | null, // [vocab], of the last token, where known
  ) {}

  /** Memory that only this state keeps alive. */
  get bytes(): number {
    return this.released ? 0 : this.state.bytes + (this.logits?.byteLength ?? 0)
  }

  get held(): HeldState {
    if (this.released) throw new ClosedError('kept state')
    return this.state
  }

  /** Gives the memory back. */
  release(): void {
    if (!this.released) this.state.release()
    this.released = true
  }
}
