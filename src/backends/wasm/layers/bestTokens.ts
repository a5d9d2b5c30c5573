// The best token of each row of logits. Every worker looks at the pieces that it has computed, while they are in its cache, and
// the leader takes the best of theirs: to look at a vocabulary of 250,000 alone took it as long as all of them need for half a
// layer. Among equals the lowest number wins, as if one had looked at all of them.
import type { Lane } from './workerOps.js'

const NOTHING = -2 // seen so far
const NOT_FINITE = -1 // one of those seen: whatever wins then means nothing

export class BestTokens {
  private readonly best: Int32Array // [rows], of the pieces that this worker has seen

  constructor(private readonly lane: Pick<Lane, 'board' | 'team' | 'kernels' | 'scratch' | 'model' | 'float'>) {
    this.best = new Int32Array(lane.board.shape.headRows)
  }

  begin(): void {
    this.best.fill(NOTHING)
  }

  /** Logits [begin, end) of the first `rows` rows are there. A worker's pieces ascend. */
  see(rows: number, begin: number, end: number): void {
    const { best, lane } = this
    const { address, stride } = lane.scratch.logits
    const kernels = lane.kernels[lane.model.lmHead.bank]
    for (let row = 0; row < rows; row++) {
      if (best[row] === NOT_FINITE) continue
      const found = kernels.argmax(address + row * stride + begin * 4, end - begin)
      if (found < 0) best[row] = NOT_FINITE
      else if (best[row] === NOTHING || this.logit(row, begin + found) > this.logit(row, best[row])) {
        best[row] = begin + found
      }
    }
  }

  /** Shows the leader what this worker has found. Before a barrier. */
  show(rows: number): void {
    const { board, team } = this.lane
    for (let row = 0; row < rows; row++) board.setBestOf(team.index, row, this.best[row])
  }

  /** The leader's, after that barrier: the best token of a row, -1 where a logit is not finite. */
  ofAll(row: number): number {
    const { board, team } = this.lane
    let winner = NOTHING
    for (let worker = 0; worker < team.size; worker++) {
      const token = board.bestOf(worker, row)
      if (token === NOT_FINITE) return NOT_FINITE
      if (token !== NOTHING && (winner === NOTHING || this.isBetter(row, token, winner))) winner = token
    }
    return winner
  }

  private isBetter(row: number, token: number, other: number): boolean {
    const [own, others] = [this.logit(row, token), this.logit(row, other)]
    return own > others || (own === others && token < other)
  }

  private logit(row: number, token: number): number {
    const { lane } = this
    const { address, stride } = lane.scratch.logits
    return lane.float(lane.model.lmHead.bank, address + row * stride + token * 4)
  }
}
