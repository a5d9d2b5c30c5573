// Final norm, the rows that somebody wants, their logits and greedy tokens, and the way back to the host. Rows go through
// in batches, so that all logits of a long prompt need no more memory than a few.
import type { ModelConfig } from '../../model/config.js'
import { type ActivationBuffers, layActivations } from './activationBuffers.js'
import { addNormOp } from './addNorm.js'
import { argmaxOp } from './argmax.js'
import { finiteRowsOp } from './finiteRows.js'
import type { GpuContext } from './gpuContext.js'
import { bufferUsage } from './gpuFlags.js'
import { makeChecked, readMapped } from './gpuMemory.js'
import { countBytes, type MakeBuffer, storageBuffer } from './kernel.js'
import { matMulOp } from './matMul.js'
import type { Op } from './op.js'
import { Recorder } from './recorder.js'
import type { ResidentWeights } from './residentWeights.js'
import type { Workspace } from './workspace.js'

const MAX_LOGITS_BYTES = 64 * 2 ** 20
const FEW_ROWS = 16 // a tile of their own: most prompts want the logits of one token

interface HeadBuffers<B> {
  readonly rows: number
  readonly input: ActivationBuffers<B>
  readonly logits: B
  readonly winners: B
}

function layHead<B>(make: MakeBuffer<B>, fast: boolean, { vocabSize, hiddenSize }: ModelConfig): HeadBuffers<B> {
  const rows = Math.max(1, Math.min(64, Math.floor(MAX_LOGITS_BYTES / (vocabSize * 4))))
  return {
    rows,
    input: layActivations(make, fast, rows, hiddenSize, 'head in'),
    logits: make(rows * vocabSize * 4, 'logits'),
    winners: make(rows * 4, 'greedy tokens'),
  }
}

/** With the buffer that logits come back in. */
export function headBytes(config: ModelConfig, fast: boolean): number {
  const { rows } = layHead(() => null, fast, config)
  return countBytes(make => layHead(make, fast, config)) + rows * config.vocabSize * 4
}

export class Head {
  readonly rows: number // per batch
  readonly input: ActivationBuffers // [rows, hidden]
  readonly logits: GPUBuffer // [rows, vocab]
  readonly winners: GPUBuffer // [rows]
  readonly readback: GPUBuffer
  readonly step: GPUBuffer
  private readonly flag: GPUBuffer // [0] 1: a row after the last layer is not finite
  private readonly flagReadback: GPUBuffer
  private readonly gpu: GpuContext
  private readonly config: ModelConfig
  private readonly space: Workspace
  private norm!: Op
  private project!: Op
  private projectFew!: Op
  private argmax!: Op
  private finite!: Op

  private constructor(gpu: GpuContext, config: ModelConfig, space: Workspace) {
    this.gpu = gpu
    this.config = config
    this.space = space
    const { device } = gpu
    const laid = layHead((size, label) => storageBuffer(device, size, label), gpu.fast, config)
    this.rows = laid.rows
    this.input = laid.input
    this.logits = laid.logits
    this.winners = laid.winners
    const usage = bufferUsage.mapRead | bufferUsage.copyDst
    const readbackBytes = this.rows * config.vocabSize * 4
    this.readback = device.createBuffer({ label: 'logits readback', size: readbackBytes, usage })
    this.flag = storageBuffer(device, 4, 'not finite')
    this.flagReadback = device.createBuffer({ label: 'not finite readback', size: 4, usage })
    this.step = device.createBuffer({ label: 'head step', size: 16, usage: bufferUsage.uniform | bufferUsage.copyDst })
  }

  static async create(gpu: GpuContext, config: ModelConfig, space: Workspace, weights: ResidentWeights): Promise<Head> {
    const head = await makeChecked(gpu.device, 'logits', () => new Head(gpu, config, space))
    const { hidden, mlpOut, normed } = space
    const norm = { weight: weights.norm, delta: mlpOut, hidden, out: normed.values }
    const source = { rows: head.input.values, width: config.hiddenSize }
    const product = { step: head.step, maxTokens: head.rows, outStride: config.vocabSize, label: 'lmHead' }
    const project = (mostTile?: number) =>
      matMulOp(gpu, weights.lmHead, head.input, head.logits, { ...product, mostTile })
    ;[head.norm, head.project, head.projectFew, head.argmax, head.finite] = await Promise.all([
      addNormOp(gpu, norm, config.hiddenSize, config.rmsNormEps),
      project(),
      project(FEW_ROWS),
      argmaxOp(gpu, head.logits, config.vocabSize, source, head.rows, head.winners),
      finiteRowsOp(gpu, hidden, config.hiddenSize, head.flag),
    ])
    return head
  }

  /** Records the final norm of all rows: `normed` then holds them. */
  recordNorm(recorder: Recorder, tokens: number): void {
    this.norm(recorder, { tokens, runs: 1 })
  }

  /** Whether all rows after the last layer are finite: after `recordNorm` of so many tokens was submitted. */
  async areFinite(tokens: number): Promise<boolean> {
    const { device } = this.gpu
    device.queue.writeBuffer(this.flag, 0, new Uint32Array(1))
    const recorder = new Recorder(device, null)
    this.finite(recorder, { tokens, runs: 1 })
    recorder.copy(this.flag, 0, this.flagReadback, 0, 4)
    recorder.submit()
    return new Uint32Array(await readMapped(this.flagReadback, 4))[0] === 0
  }

  /** Logits of the given rows of `normed`, back to back. */
  async readLogits(rows: readonly number[]): Promise<Float32Array> {
    const { vocabSize } = this.config
    const out = new Float32Array(rows.length * vocabSize)
    for (let first = 0; first < rows.length; first += this.rows) {
      const batch = rows.slice(first, first + this.rows)
      const bytes = batch.length * vocabSize * 4
      this.submit(batch, recorder => recorder.copy(this.logits, 0, this.readback, 0, bytes))
      out.set(new Float32Array(await readMapped(this.readback, bytes)), first * vocabSize)
    }
    return out
  }

  /** Rows of logits that decoding has left. */
  async readRows(first: number, count: number): Promise<Float32Array> {
    const row = this.config.vocabSize * 4
    const bytes = count * row
    const recorder = new Recorder(this.gpu.device, null)
    recorder.copy(this.logits, first * row, this.readback, 0, bytes)
    recorder.submit()
    return new Float32Array(await readMapped(this.readback, bytes))
  }

  /** Greedy tokens of the given rows of `normed`, or NOT_FINITE: four bytes each come back. */
  async readArgmax(rows: readonly number[]): Promise<Uint32Array> {
    const out = new Uint32Array(rows.length)
    for (let first = 0; first < rows.length; first += this.rows) {
      const batch = rows.slice(first, first + this.rows)
      this.submit(batch, recorder => {
        this.argmax(recorder, { tokens: batch.length, runs: 1 })
        recorder.copy(this.winners, 0, this.readback, 0, batch.length * 4)
      })
      out.set(new Uint32Array(await readMapped(this.readback, batch.length * 4)), first)
    }
    return out
  }

  private submit(rows: readonly number[], then: (recorder: Recorder) => void): void {
    const { device } = this.gpu
    const rowBytes = this.config.hiddenSize * 4
    device.queue.writeBuffer(this.step, 0, new Uint32Array([rows.length, 1, 0, 0]))
    const recorder = new Recorder(device, null)
    for (const [i, row] of rows.entries()) {
      recorder.copy(this.space.normed.values, row * rowBytes, this.input.values, i * rowBytes, rowBytes)
    }
    const project = rows.length <= FEW_ROWS ? this.projectFew : this.project
    project(recorder, { tokens: rows.length, runs: 1 })
    then(recorder)
    recorder.submit()
  }
}
