// Guesses of the head by the kernels of prompts, one by one: they bring experts that are missing, or have the host compute them,
// as for any other layer.
import type { Op } from '../../../gpu/device/op.js'
import type { ModelConfig } from '../../../model/config.js'
import { addNormOp } from '../../../ops/norm/addNorm.gpu.js'
import type { Head } from '../decode/lmHead.js'
import { headOf, type ResidentWeights } from '../memory/residentWeights.js'
import type { StepInfo } from '../memory/stepInfo.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import type { PromptPass } from '../prefill/prefillPass.js'
import { headInputOp } from './draftHeadOps.js'
import { type Guesser, type GuessOrders, type GuessRow, rowsAt } from './draftRunner.js'

export class DraftByPrompt implements Guesser {
  private first!: Op
  private next!: Op
  private norm!: Op
  private rows: readonly GuessRow[] = []
  private tokens: number[] = []
  private made = 0

  private constructor(
    private readonly config: ModelConfig,
    private readonly pass: PromptPass,
    private readonly info: StepInfo,
    private readonly head: Head,
  ) {}

  static async create(
    parts: LayerParts,
    weights: ResidentWeights,
    pass: PromptPass,
    info: StepInfo,
    head: Head,
  ): Promise<DraftByPrompt> {
    const { gpu, config, space } = parts
    const guesser = new DraftByPrompt(config, pass, info, head)
    const norm = { weight: headOf(weights).norm, delta: space.mlpOut, hidden: space.hidden, out: space.normed.values }
    ;[guesser.first, guesser.next, guesser.norm] = await Promise.all([
      headInputOp(parts, weights, 'first', 'many'),
      headInputOp(parts, weights, 'next', 'many'),
      addNormOp(gpu, norm, config.hiddenSize, config.rmsNormEps),
    ])
    return guesser
  }

  begin(rows: readonly GuessRow[]): void {
    this.rows = rows
    this.made = 0
    this.tokens = rows.map(({ tokens }) => tokens[0])
  }

  async extend(guesses: number, { signal }: GuessOrders): Promise<Uint32Array[]> {
    const made: Uint32Array[] = []
    for (let i = 0; i < guesses; i++) made.push(await this.guess(signal))
    return made
  }

  async readLogits(row: number): Promise<Float32Array> {
    return await this.head.readLogits([row])
  }

  put(row: number, token: number): void {
    this.tokens[row] = token
  }

  private async guess(signal: AbortSignal | undefined): Promise<Uint32Array> {
    signal?.throwIfAborted()
    const { numLayers, vocabSize } = this.config
    const size = { tokens: this.rows.length, runs: this.rows.length }
    // What is no token is no guess either: what comes behind it does not matter.
    const tokens = this.tokens.map(token => Math.min(token, vocabSize - 1))
    this.info.write(rowsAt(this.rows, this.made, tokens))
    const recorder = this.pass.recorder()
    const enter = this.made === 0 ? this.first : this.next
    enter(recorder, size)
    const last = () => this.norm(recorder, size)
    await this.pass.run(recorder, size, { first: numLayers, end: numLayers + 1, signal, last })
    const best = await this.head.readBest([...this.rows.keys()], null)
    this.made++
    this.tokens = [...best]
    return best
  }
}
