// One worker's share of a job: embedding, layers, logits. All workers run this in step over shared memory, on the course
// of jobCourse.ts. Barriers stand where a worker needs what others wrote; everything between two barriers touches each
// word from one worker only, or writes the same value from all. The leader also times the phases and feeds the experts.
import type { ExpertFeed } from './expertFeed.js'
import { FullMixer } from './fullMixer.js'
import { PHASES } from './jobBoard.js'
import type { LayerRange, Share } from './jobCourse.js'
import { HOME, type Lane, type Need, needsOf } from './lane.js'
import { LinearMixer } from './linearMixer.js'
import { Moe } from './moe.js'

interface Block {
  readonly mixer: LinearMixer | FullMixer
  readonly moe: Moe
}

export class Forward implements Share {
  private readonly blocks: readonly Block[]
  private readonly headNeeds: readonly Need[]
  private layer = 0 // of the present job
  private mark = 0

  constructor(
    private readonly lane: Lane,
    private readonly feed: ExpertFeed | null, // the leader's
    /** The leader has put the results of a job down. */
    private readonly ended: (isFinished: boolean) => void,
  ) {
    const { model } = lane
    const entries = Array.from({ length: model.config.numExperts }, () => ({
      bank: 0,
      address: 0,
      pairStart: 0,
      pairs: 0,
    }))
    let fullLayers = 0
    this.blocks = model.layers.map((layer, index) => ({
      mixer:
        layer.kind === 'full_attention'
          ? new FullMixer(lane, index, fullLayers++, layer)
          : new LinearMixer(lane, index, layer),
      moe: new Moe(lane, index, layer, entries, feed),
    }))
    this.headNeeds = needsOf(model.lmHead)
  }

  begin(): LayerRange {
    const { lane } = this
    lane.begin()
    this.feed?.beginJob()
    const { embed, probe, firstLayer, endLayer } = lane.board
    this.mark = performance.now()
    if (embed) this.embed()
    if (embed || probe) this.ropeTables()
    return { firstLayer, endLayer }
  }

  mix(layer: number): void {
    this.layer = layer
    const { mixer, moe } = this.blocks[layer]
    mixer.run()
    this.count('mixer')
    moe.begin()
  }

  nextWave(): void {
    this.feed?.nextWave()
  }

  wave(isLast: boolean): void {
    this.blocks[this.layer].moe.computeWave(isLast)
  }

  endLayer(): void {
    this.feed?.release()
    this.count('experts')
  }

  /** Logits of the wanted rows. Every worker norms them for itself: they are few. */
  head(): void {
    const { lane } = this
    const { board, model } = lane
    const { hidden, logits } = lane.scratch
    const { lmHead, config } = model
    const stage = lane.own.head
    const count = board.headCount
    if (count === 0) return
    for (let i = 0; i < count; i++) {
      const x = hidden.address + board.headRow(i) * hidden.stride
      const out = stage.x.address + i * stage.x.stride
      lane.home.rmsNorm(out, stage.x.stride, x, hidden.stride, model.norm, config.hiddenSize, config.rmsNormEps, 1)
    }
    lane.prepare(stage, this.headNeeds, 0, count)
    lane.team.ranges(lmHead.rows, lane.rowGrain(lmHead.rows, lmHead.cols * count), (begin, end) => {
      lane.product(lmHead, lmHead.bank, 0, stage, 0, 0, logits, 0, 0, count, begin, end)
    })
  }

  conclude(isFinished: boolean): void {
    const { lane, feed } = this
    if (!feed) return
    if (isFinished && lane.board.argmax) this.argmax()
    this.count('head')
    lane.board.waited[0] = lane.team.waited
    feed.endJob(isFinished)
    this.ended(isFinished)
  }

  private argmax(): void {
    const { board, scratch, kernels, model } = this.lane
    const { address, stride } = scratch.logits
    for (let i = 0; i < board.headCount; i++) {
      board.setArgmax(i, kernels[model.lmHead.bank].argmax(address + i * stride, model.config.vocabSize))
    }
  }

  private count(phase: (typeof PHASES)[number]): void {
    if (!this.feed) return
    const now = performance.now()
    const { seconds } = this.lane.board
    const aside = this.feed.takeAside()
    seconds[PHASES.indexOf('router')] += aside.router
    seconds[PHASES.indexOf('stall')] += aside.stall
    seconds[PHASES.indexOf(phase)] += (now - this.mark) / 1000 - aside.router - aside.stall
    this.mark = now
  }

  private embed(): void {
    const { lane } = this
    const { hidden } = lane.scratch
    const { embed } = lane.model
    lane.team.ranges(lane.rows, 1, (begin, end) => {
      for (let row = begin; row < end; row++) {
        const out = hidden.address + row * hidden.stride
        const kernels = lane.kernels[embed.bank]
        const { weight, scales, biases, type, bits, group, cols } = embed
        if (bits === 0 || group === 0) {
          const bytes = cols * (type === 2 ? 4 : 2)
          kernels.convertFloats(out, weight + lane.board.token(row) * bytes, type, cols)
        } else {
          kernels.dequantizeRow(out, weight, scales, biases, type, bits, group, cols, lane.board.token(row))
        }
        if (embed.bank !== HOME) lane.copyColumns(embed.bank, HOME, hidden, row, row + 1, 0, cols)
      }
    })
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
    const { dims: rotaryDim, theta } = lane.model.config.rope
    const { rowStart, rows, position } = lane.board.run(run)
    const half = rotaryDim / 2
    for (let row = Math.max(begin, rowStart); row < Math.min(end, rowStart + rows); row++) {
      const table = lane.row(ropeTable, row, rotaryDim)
      for (let i = 0; i < half; i++) {
        const angle = (position + row - rowStart) * theta ** ((-2 * i) / rotaryDim)
        table[i] = Math.cos(angle)
        table[half + i] = Math.sin(angle)
      }
    }
  }
}
