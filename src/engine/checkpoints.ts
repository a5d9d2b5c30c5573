// The checkpoints of one context: held states by position, with the logits at that point. Which ones stay is decided by
// the rules alone; this keeps the states in step with them and gives their memory back.
import type { HeldState } from '../backends/backend.js'
import { CheckpointRules } from './checkpointRules.js'

export interface Checkpoint {
  readonly held: HeldState
  readonly logits: Float32Array | null // [vocab], where they were known
}

export class Checkpoints {
  private readonly rules: CheckpointRules
  private readonly states = new Map<number, Checkpoint>()

  constructor(max: number) {
    this.rules = new CheckpointRules(max)
  }

  get max(): number {
    return this.rules.max
  }

  /** Lowering it evicts at the next store. */
  set max(max: number) {
    this.rules.max = max
  }

  get positions(): number[] {
    return this.rules.positions
  }

  get bytes(): number {
    let bytes = 0
    for (const { held, logits } of this.states.values()) bytes += held.bytes + (logits?.byteLength ?? 0)
    return bytes
  }

  has(position: number): boolean {
    return this.rules.has(position)
  }

  nearest(position: number): number | null {
    return this.rules.nearest(position)
  }

  /** The checkpoint at `position`, which must be there. */
  at(position: number): Checkpoint {
    return this.states.get(position) as Checkpoint
  }

  store(position: number, checkpoint: Checkpoint): void {
    this.states.get(position)?.held.release()
    this.states.set(position, checkpoint)
    this.release(this.rules.store(position))
  }

  /** The checkpoint at `position`, which must be there; those after it are gone. */
  restore(position: number): Checkpoint {
    this.release(this.rules.restore(position))
    return this.at(position)
  }

  dropAfter(position: number): void {
    this.release(this.rules.dropAfter(position))
  }

  private release(positions: readonly number[]) {
    for (const position of positions) {
      this.states.get(position)?.held.release()
      this.states.delete(position)
    }
  }
}
