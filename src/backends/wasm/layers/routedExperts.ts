// The routed experts of one layer over all rows of a step, in waves as they become ready. Each expert is applied once to
// all rows routed to it. What the experts gave is kept per (row, rank) and summed at the very end in the order of ranks, so
// arrival order, waves and batches change nothing.
import type { PlacedFeedForward } from '../memory/placedModel.js'
import type { Rows, Stage } from '../memory/scratch.js'
import type { WaveEntry } from '../workers/jobBoard.js'
import { HOME, type Lane, type LaneModel, type Need } from './workerOps.js'

const UNITS_PER_WORKER = 16
const COMBINES_PER_WORKER = 2

/** What a shared expert gave, and the logits of its gate; without one it counts whole. */
export interface SharedPart {
  readonly out: Rows
  readonly gate: Rows | null
}

export class RoutedExperts {
  private readonly expertForms: readonly number[]
  private readonly prepared = new Set<number>() // banks that have the experts' input

  constructor(
    private readonly lane: Lane<LaneModel>,
    private readonly expert: PlacedFeedForward,
    private readonly inputNeeds: readonly Need[], // what the input is prepared for already, at home
    private readonly entries: WaveEntry[], // [experts], scratch of this worker
    private readonly weights: number, // [rows, ranks], by which what experts gave is added
  ) {
    this.expertForms = expert.gate.form === expert.up.form ? [expert.gate.form] : [expert.gate.form, expert.up.form]
  }

  /** The input is another one. */
  begin(): void {
    this.prepared.clear()
  }

  /** The experts that are on the board. */
  wave(): void {
    const { lane, entries } = this
    const { board, team } = lane
    const input = lane.stage('input')
    const count = board.waveCount
    for (let i = 0; i < count; i++) board.readEntry(i, entries[i])

    this.prepareInput(input, count)
    this.gateUp(input, count)
    team.barrier()
    const act = lane.stage('expertAct')
    this.prepareAct(act, count)
    this.down(act, count)
  }

  /** The input of the experts in every bank where one of the wave lies. */
  private prepareInput(input: Stage, count: number): void {
    const { lane, prepared } = this
    const needs: Need[] = []
    for (let i = 0; i < count; i++) {
      const { bank } = this.entries[i]
      if (prepared.has(bank)) continue
      prepared.add(bank)
      for (const form of this.expertForms) {
        const known = bank === HOME && this.inputNeeds.some(need => need.bank === bank && need.form === form)
        if (!known) needs.push({ bank, form })
      }
    }
    if (needs.length === 0) return
    lane.eachRow(lane.rows, (begin, end) => lane.prepare(input, needs, begin, end))
  }

  /** Units: a piece of the intermediate rows of one expert; gate and up together. */
  private gateUp(input: Stage, count: number): void {
    const { lane } = this
    const { gate, up, activation } = this.expert
    const { expertUp, expertAct, pairRow } = lane.scratch
    this.eachPiece(gate.rows, count, (entry, begin, end) => {
      const { bank, pairStart, pairs } = entry
      const picked = { stage: input, first: 0, list: pairRow + pairStart * 4 }
      const gates = { rows: expertAct.x, first: pairStart, list: 0 }
      const ups = { rows: expertUp, first: pairStart, list: 0 }
      lane.products.compute(gate, entry, picked, gates, pairs, begin, end)
      lane.products.compute(up, entry, picked, ups, pairs, begin, end)
      lane.activate(activation, bank, expertAct.x, expertUp, pairStart, pairs, begin, end)
    })
  }

  private prepareAct(act: Stage, count: number): void {
    const { lane } = this
    const { form } = this.expert.down
    if (form < 0) return
    const prepare = (first: number, end: number) => {
      for (let i = first; i < end; i++) {
        const { bank, pairStart, pairs } = this.entries[i]
        lane.prepareForm(act, bank, form, pairStart, pairStart + pairs)
      }
    }
    lane.eachRow(count, prepare)
  }

  /** Units: a piece of the output columns of one expert, as long as can be: short reads here and there are slow. */
  private down(act: Stage, count: number): void {
    const { lane } = this
    const { down } = this.expert
    const { expertOut, pairOut } = lane.scratch
    this.eachPiece(down.rows, count, (entry, begin, end) => {
      const { bank, pairStart, pairs } = entry
      const picked = { rows: expertOut, first: 0, list: pairOut + pairStart * 4 }
      lane.products.compute(down, entry, { stage: act, first: pairStart, list: 0 }, picked, pairs, begin, end)
      if (bank !== HOME) lane.copyIndexed(bank, HOME, expertOut, pairOut, pairStart, pairs, begin, end)
    })
  }

  /** Shares out the rows of a matrix that every expert of the wave has. */
  private eachPiece(rows: number, count: number, work: (entry: WaveEntry, begin: number, end: number) => void): void {
    const { team } = this.lane
    const pieces = team.size === 1 ? 1 : Math.max(1, Math.ceil((team.size * UNITS_PER_WORKER) / count))
    const grain = to8(Math.ceil(rows / pieces))
    const units = Math.ceil(rows / grain)
    team.ranges(count * units, 1, (first, end) => {
      for (let unit = first; unit < end; unit++) {
        const begin = (unit % units) * grain
        work(this.entries[Math.floor(unit / units)], begin, Math.min(rows, begin + grain))
      }
    })
  }

  /** The sum of what all experts gave, over so many ranks, and of the shared one. `after` runs on each finished piece. */
  combine(ranks: number, shared: SharedPart | null, after?: (begin: number, end: number) => void): void {
    const { team, model } = this.lane
    const columns = model.config.hiddenSize
    const grain = to8(Math.ceil(columns / (team.size * COMBINES_PER_WORKER)))
    team.ranges(columns, grain, (begin, end) => {
      this.combineColumns(ranks, shared, begin, end)
      after?.(begin, end)
    })
  }

  private combineColumns(ranks: number, shared: SharedPart | null, begin: number, end: number): void {
    const { lane } = this
    const { mlpOut, expertOut } = lane.scratch
    lane.home.combine(
      mlpOut.address,
      mlpOut.stride,
      expertOut.address,
      expertOut.stride,
      this.weights,
      ranks,
      shared?.out.address ?? 0,
      shared?.out.stride ?? 0,
      shared?.gate?.address ?? 0,
      shared?.gate?.stride ?? 0,
      lane.rows,
      begin,
      Math.ceil(end / 4) * 4,
    )
  }
}

function to8(n: number): number {
  return Math.ceil(n / 8) * 8
}
