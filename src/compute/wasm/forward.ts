// What one worker does for a job: embedding, layers, logits. All workers run this in step over shared memory. Barriers
// stand where a worker needs what others wrote; everything between two barriers touches each word from one worker only,
// or writes the same value from all. The leader also times the phases and feeds the experts.
import type { ExpertFeed } from './expertFeed.js'
import { FullMixer } from './fullMixer.js'
import { PHASES } from './jobBoard.js'
import { HOME, type Lane, type Need, needsOf } from './lane.js'
import { LinearMixer } from './linearMixer.js'
import { Moe } from './moe.js'

interface Block {
  readonly mixer: LinearMixer | FullMixer
  readonly moe: Moe
}

export class Forward {
  private readonly blocks: readonly Block[]
  private readonly headNeeds: readonly Need[]
  private mark = 0

  constructor(
    private readonly lane: Lane,
    private readonly feed: ExpertFeed | null, // the leader's
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

  /** Runs the job on the board. False: given up in the middle, at the same point in every worker. */
  run(): boolean {
    const { firstLayer, endLayer, headCount } = this.begin()
    for (let layer = firstLayer; layer < endLayer; layer++) {
      const moe = this.mix(layer)
      let wave = moe.wave()
      while (wave === false) wave = moe.wave()
      this.endLayer()
      if (wave === null) return false
    }
    this.end(headCount)
    return true
  }

  /** The same for a thread that may not block: `pause` before every layer, `ready` before experts are computed. */
  async runPatiently(pause: () => Promise<void>, ready: () => Promise<void>): Promise<boolean> {
    const { firstLayer, endLayer, headCount } = this.begin()
    for (let layer = firstLayer; layer < endLayer; layer++) {
      await pause()
      const moe = this.mix(layer)
      let wave: boolean | null = false
      while (wave === false) {
        await ready()
        wave = moe.wave()
      }
      this.endLayer()
      if (wave === null) return false
    }
    this.end(headCount)
    return true
  }

  private begin(): { firstLayer: number; endLayer: number; headCount: number } {
    const { lane } = this
    lane.begin()
    // Read once: past its last barrier a worker may lag behind while the next job is being written.
    const { embed, probe, firstLayer, endLayer, headCount } = lane.board
    this.mark = performance.now()
    if (embed) this.embed()
    if (embed || probe) this.ropeTables()
    return { firstLayer, endLayer, headCount }
  }

  private mix(layer: number): Moe {
    const { mixer, moe } = this.blocks[layer]
    mixer.run()
    this.count('mixer')
    moe.begin()
    return moe
  }

  private endLayer(): void {
    this.feed?.release()
    this.count('experts')
  }

  private end(headCount: number): void {
    if (headCount > 0) this.head()
    this.count('head')
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
    const { ropeTable } = lane.scratch
    const { config } = lane.model
    const half = config.rotaryDim / 2
    for (let run = 0; run < lane.board.runs; run++) {
      const { rowStart, rows, position } = lane.board.run(run)
      lane.team.ranges(rows, 8, (begin, end) => {
        for (let row = begin; row < end; row++) {
          const table = lane.row(ropeTable, rowStart + row, config.rotaryDim)
          for (let i = 0; i < half; i++) {
            const angle = (position + row) * config.ropeTheta ** ((-2 * i) / config.rotaryDim)
            table[i] = Math.cos(angle)
            table[half + i] = Math.sin(angle)
          }
        }
      })
    }
    lane.team.barrier()
  }

  /** Logits of the wanted rows. Every worker norms them for itself: they are few. */
  private head(): void {
    const { lane } = this
    const { board, model } = lane
    const { hidden, logits } = lane.scratch
    const { lmHead, config } = model
    const stage = lane.own.head
    const count = board.headCount
    for (let i = 0; i < count; i++) {
      const x = hidden.address + board.headRow(i) * hidden.stride
      const out = stage.x.address + i * stage.x.stride
      lane.home.rmsNorm(out, stage.x.stride, x, hidden.stride, model.norm, config.hiddenSize, config.rmsNormEps, 1)
    }
    lane.prepare(stage, this.headNeeds, 0, count)
    lane.team.ranges(lmHead.rows, lane.rowGrain(lmHead.rows, lmHead.cols * count), (begin, end) => {
      lane.product(lmHead, lmHead.bank, 0, stage, 0, 0, logits, 0, 0, count, begin, end)
    })
    lane.team.barrier()
    if (!lane.team.isLeader || !board.argmax) return
    for (let i = 0; i < count; i++) {
      const token = lane.kernels[lmHead.bank].argmax(logits.address + i * logits.stride, config.vocabSize)
      board.setArgmax(i, token)
    }
  }
}
