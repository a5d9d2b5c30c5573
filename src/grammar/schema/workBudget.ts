// A bound on work that acts while the work is done. It counts steps and not time, so that the same schema is always taken
// or always refused, on any machine and under any load.
import { UnsupportedSchemaError } from '../../base/errors.js'

export class WorkBudget {
  private left: number

  constructor(private readonly steps: number) {
    this.left = steps
  }

  /** `path` is where the work is done, for the message. */
  spend(steps: number, path: string): void {
    this.left -= steps
    if (this.left < 0) {
      throw new UnsupportedSchemaError('schema', path, `it takes more than ${this.steps} steps to make a grammar of it`)
    }
  }
}
