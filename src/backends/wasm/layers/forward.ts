// One worker's share of a job: embedding, layers, logits. All workers run this in step over shared memory, on the course
// of jobRunner.ts. Barriers stand where a worker needs what others wrote; everything between two barriers touches each
// word from one worker only, or writes the same value from all. The leader also times the phases and feeds the experts.
//
// Words: a bank is one of the memories, home the first, where activations are. A lane is one worker's kernels over all banks. A
// stage is the input of products: rows of floats, and records of them in each form (a bit width, a precision) that some matrix
// needs; a need is a form in a bank. A wave is some experts that are in memory, which the feed has put on the board.
import { blockFormat } from '../../../model/blockFormats.js'
import { type RopeFrequencies, ropeFrequencies } from '../../../model/ropeFrequencies.js'
import type { PlacedHead } from '../memory/placedModel.js'
import type { Rows } from '../memory/scratch.js'
import { WAVE } from '../workers/jobBoard.js'
import { PHASES } from '../workers/jobLayout.js'
import type { LayerRange, Share } from '../workers/jobRunner.js'
import { FullMixer } from './attentionMixer.js'
import { BestTokens } from './bestTokens.js'
import { LinearMixer } from './deltaMixer.js'
import { Dense } from './denseExpert.js'
import { HeadInput } from './draftHeadInput.js'
import type { ExpertFeed } from './expertFeed.js'
import { Moe } from './moe.js'
import { HOME, type Lane, type Need, needsOf } from './workerOps.js'

interface Block {
  readonly mixer: LinearMixer | FullMixer
  readonly feedForward: Moe | Dense
}

export class Forward implements Share {
  private readonly blocks: readonly Block[]
  private readonly headNeeds: readonly Need[]
  private readonly headInput: HeadInput | null // of a head for drafts
  private readonly best: BestTokens
  private readonly rope: RopeFrequencies
  private layer = 0 // of the present job
  private pass = 0 // of the present job: guesses before this one
  private mark = 0

  constructor(
    private readonly lane: Lane,
    private readonly feed: ExpertFeed | null, // the leader's, where there are experts
    /** The leader has put the results of a job down. */
    private readonly ended: (isFinished: boolean) => void,
  ) {
    const { model } = lane
    this.blocks = makeBlocks(lane, feed)
    this.rope = ropeFrequencies(model.config.rope)
    this.headNeeds = needsOf(model.lmHead)
    this.best = new BestTokens(lane)
    this.headInput = model.draftHead && new HeadInput(lane, model.draftHead, (row, out) => this.embedRow(row, out))
  }

  begin(): LayerRange {
    const { lane } = this
    lane.begin()
    this.feed?.beginJob()
    const { embed, probe, firstLayer, endLayer, drafts } = lane.board
    this.mark = performance.now()
    this.pass = 0
    if (drafts === 'guess') this.beginGuess()
    else {
      if (embed) this.embed()
      if (embed || probe) this.ropeTables()
    }
    return { firstLayer, endLayer }
  }

  mix(layer: number): void {
    this.layer = layer
    const { mixer, feedForward } = this.blocks[layer]
    mixer.run()
    this.count('mixer')
    feedForward.begin()
  }

  nextWave(): void {
    const { feed, lane } = this
    if (feed && this.blocks[this.layer].feedForward.hasExperts) feed.nextWave()
    else lane.board.setWave(lane.board.aborted ? WAVE.abandon : WAVE.lastExperts, 0)
  }

  wave(isLast: boolean): void {
    this.blocks[this.layer].feedForward.computeWave(isLast)
  }

  endLayer(): void {
    this.feed?.release()
    this.count(this.blocks[this.layer].feedForward.hasExperts ? 'experts' : 'dense')
  }

  head(): void {
    const { lane, headInput } = this
    const { mlpOut, mixerOut } = lane.scratch // free by now
    const addsRows = lane.board.drafts === 'rows' && headInput !== null
    if (addsRows) headInput.ofStep(mlpOut, mixerOut)
    this.logits()
    if (!addsRows) return
    lane.team.barrier()
    const { mixer } = this.blocks[this.blocks.length - 1]
    ;(mixer as FullMixer).storeOnly(mlpOut)
  }

  /** Another guess behind the one that was made. The leader takes its token, the others go ahead with the rest of its input. */
  goesOn(): boolean {
    const { lane, headInput } = this
    const { board, team } = lane
    if (board.drafts !== 'guess' || headInput === null || this.pass + 1 >= board.passes) return false
    team.barrier()
    headInput.followUp()
    if (team.isLeader) this.argmax()
    team.barrier()
    this.pass++
    this.beginGuess()
    return true
  }

  private beginGuess(): void {
    this.lane.shift = this.pass
    this.ropeTables()
    this.headInput?.ofGuesses(this.pass === 0)
  }

  /** Of the wanted rows. Every worker norms them for itself: they are few. */
  private logits(): void {
    const { lane, best } = this
    const { board, model } = lane
    const { hidden, logits } = lane.scratch
    const { lmHead, config } = model
    const norm = board.drafts === 'guess' ? (model.draftHead as PlacedHead).norm : model.norm
    const stage = lane.own.head
    const count = board.headCount
    if (count === 0) return
    for (let i = 0; i < count; i++) {
      const x = hidden.address + board.headRow(i) * hidden.stride
      const out = stage.x.address + i * stage.x.stride
      lane.home.rmsNorm(out, stage.x.stride, x, hidden.stride, norm, config.hiddenSize, config.rmsNormEps, 1)
    }
    lane.prepare(stage, this.headNeeds, 0, count)
    const [input, output] = [
      { stage, first: 0, list: 0 },
      { rows: logits, first: 0, list: 0 },
    ]
    const compute = (begin: number, end: number) => {
      lane.products.compute(lmHead, null, input, output, count, begin, end)
      if (board.argmax) best.see(count, begin, end)
    }
    const productsPerRow = lmHead.cols * count
    const common = { rows: board.commonTokens ?? lmHead.rows, productsPerRow }
    best.begin()
    lane.shareRows([common, { rows: board.rareTokens, productsPerRow }], (index, begin, end) => {
      if (index === 0) compute(begin, end)
      else for (let i = begin; i < end; i++) compute(board.rareToken(i), board.rareToken(i) + 1)
    })
    best.show(count)
  }

  conclude(isFinished: boolean): void {
    const { lane, feed } = this
    if (!lane.team.isLeader) return
    if (isFinished && lane.board.argmax) this.argmax()
    this.count('head')
    lane.board.waited[0] = lane.team.waited
    feed?.endJob(isFinished)
    this.ended(isFinished)
  }

  private argmax(): void {
    const { board } = this.lane
    for (let i = 0; i < board.headCount; i++) board.setArgmax(i, this.best.ofAll(i), this.pass)
  }

  private count(phase: (typeof PHASES)[number]): void {
    if (!this.lane.team.isLeader) return
    const now = performance.now()
    const { seconds } = this.lane.board
    const { router, stall } = this.feed?.takeAside() ?? { router: 0, stall: 0 }
    seconds[PHASES.indexOf('router')] += router
    seconds[PHASES.indexOf('stall')] += stall
    seconds[PHASES.indexOf(phase)] += (now - this.mark) / 1000 - router - stall
    this.mark = now
  }

  private embed(): void {
    const { lane } = this
    lane.team.ranges(lane.rows, 1, (begin, end) => {
      for (let row = begin; row < end; row++) this.embedRow(row, lane.scratch.hidden)
    })
  }

  /** The embedding of a row's token, or of the guess that was made there. */
  private embedRow(row: number, rows: Rows): void {
    const { lane, pass } = this
    const { board } = lane
    const { embed } = lane.model
    const token = pass === 0 ? board.token(row) : Math.max(0, board.argmaxOf(row, pass - 1))
    const out = rows.address + row * rows.stride
    const kernels = lane.kernels[embed.bank]
    const { weight, scales, biases, type, bits, group, cols, block, span } = embed
    if (block !== null) {
      const { kernel } = blockFormat(block)
      kernels.dequantizeBlocks(out, weight, scales, kernel, span, cols, token, lane.own.product)
    } else if (bits === 0 || group === 0) {
      const bytes = cols * (type === 2 ? 4 : 2)
      kernels.convertFloats(out, weight + token * bytes, type, cols)
    } else {
      kernels.dequantizeRow(out, weight, scales, biases, type, bits, group, cols, token)
    }
    if (embed.bank !== HOME) lane.copyColumns(embed.bank, HOME, rows, row, row + 1, 0, cols)
  }

  /** Angles in float64, as the reference has them. */
  private ropeTables(): void {
    const { lane } = this
    lane.team.ranges(lane.rows, 8, (begin, end) => {
      for (let run = 0; run < lane.board.runs; run++) this.ropeRows(run, begin, end)
    })
    lane.team.barrier()
  }

  /** Of rows [begin, end) those that are the run's. */
  private ropeRows(run: number, begin: number, end: number): void {
    const { lane } = this
    const { ropeTable } = lane.scratch
    const { frequencies, magnitude } = this.rope
    const { rowStart, rows, position } = lane.board.run(run)
    const half = frequencies.length
    for (let row = Math.max(begin, rowStart); row < Math.min(end, rowStart + rows); row++) {
      const table = lane.row(ropeTable, row, 2 * half)
      for (let i = 0; i < half; i++) {
        const angle = (position + lane.shift + row - rowStart) * frequencies[i]
        table[i] = magnitude * Math.cos(angle)
        table[half + i] = magnitude * Math.sin(angle)
      }
    }
  }
}

function makeBlocks(lane: Lane, feed: ExpertFeed | null): Block[] {
  const { layers, config } = lane.model
  const entries = Array.from({ length: config.numExperts }, () => ({ bank: 0, address: 0, pairStart: 0, pairs: 0 }))
  let fullLayers = 0
  return layers.map((layer, index) => {
    const { mixer, feedForward } = layer
    return {
      mixer:
        mixer.kind === 'full_attention'
          ? new FullMixer(lane, index, fullLayers++, layer, mixer)
          : new LinearMixer(lane, index, layer, mixer),
      feedForward:
        feedForward.kind === 'moe'
          ? new Moe(lane, config.expertLayers.indexOf(index), layer, feedForward, entries, feed)
          : new Dense(lane, layer, feedForward, config.moeLayers[0] === index + 1 ? feed : null),
    }
  })
}
