// Final norm, the rows that somebody wants, their logits and greedy tokens, and the way back to the host. Rows go through
// in batches, so that all logits of a long prompt need no more memory than a few.
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { makeChecked, readMapped, withMapped } from '../../../gpu/device/gpuMemory.js'
import { countBytes, type MakeBuffer, storageBuffer } from '../../../gpu/device/kernel.js'
import type { Op } from '../../../gpu/device/op.js'
import { Recorder } from '../../../gpu/device/recorder.js'
import { type ActivationBuffers, layActivations } from '../../../gpu/memory/activationBuffers.js'
import type { ModelConfig } from '../../../model/config.js'
import { argmaxOp } from '../../../ops/argmax/argmax.gpu.js'
import { matMulOp } from '../../../ops/matmul/matMul.gpu.js'
import { addNormOp } from '../../../ops/norm/addNorm.gpu.js'
import { finiteRowsOp } from '../../../ops/norm/finiteRows.gpu.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import type { Workspace } from '../memory/workspace.js'

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

/** With the buffer that logits and best tokens come back in. */
export function headBytes(config: ModelConfig, fast: boolean): number {
  const { rows } = layHead(() => null, fast, config)
  return countBytes(make => layHead(make, fast, config)) + readbackBytes(rows, config)
}

function readbackBytes(rows: number, { vocabSize }: ModelConfig): number {
  return rows * (vocabSize + 1) * 4
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
    const size = readbackBytes(this.rows, config)
    this.readback = device.createBuffer({ label: 'logits readback', size, usage })
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

  /** The same, and whether all rows after the last layer are finite: `areFinite` tells. */
  recordEnd(recorder: Recorder, tokens: number): void {
    this.recordNorm(recorder, tokens)
    this.gpu.device.queue.writeBuffer(this.flag, 0, new Uint32Array(1))
    this.finite(recorder, { tokens, runs: 1 })
    recorder.copy(this.flag, 0, this.flagReadback, 0, 4)
  }

  /** After what `recordEnd` has recorded was submitted. */
  async areFinite(): Promise<boolean> {
    return new Uint32Array(await readMapped(this.flagReadback, 4))[0] === 0
  }

  /** Logits of the given rows of `normed`, back to back. */
  async readLogits(rows: readonly number[]): Promise<Float32Array> {
    const logits = new Float32Array(rows.length * this.config.vocabSize)
    await this.readBest(rows, logits)
    return logits
  }

  /** The best tokens of the given rows of `normed`, or NOT_FINITE; `logits`: gets those of the rows, back to back. */
  async readBest(rows: readonly number[], logits: Float32Array | null): Promise<Uint32Array> {
    const { vocabSize } = this.config
    const best = new Uint32Array(rows.length)
    for (let first = 0; first < rows.length; first += this.rows) {
      const batch = rows.slice(first, first + this.rows)
      const floats = logits === null ? 0 : batch.length * vocabSize
      this.submit(batch, floats)
      await withMapped(this.readback, (floats + batch.length) * 4, bytes => {
        logits?.set(new Float32Array(bytes, 0, floats), first * vocabSize)
        best.set(new Uint32Array(bytes, floats * 4), first)
      })
    }
    return best
  }

  /** Records the way back of rows of logits that decoding leaves, for `takeRows`. */
  recordRows(recorder: Recorder, count: number): void {
    recorder.copy(this.logits, 0, this.readback, 0, count * this.config.vocabSize * 4)
  }

  /** Lends `take` the rows that have come back: after what `recordRows` has recorded was submitted. */
  takeRows(count: number, take: (logits: Float32Array) => void): Promise<void> {
    return withMapped(this.readback, count * this.config.vocabSize * 4, bytes => take(new Float32Array(bytes)))
  }

  /** The logits of rows, `floats` of them to come back, and then the best tokens. */
  private submit(rows: readonly number[], floats: number): void {
    const { device } = this.gpu
    const rowBytes = this.config.hiddenSize * 4
    const size = { tokens: rows.length, runs: 1 }
    device.queue.writeBuffer(this.step, 0, new Uint32Array([rows.length, 1, 0, 0]))
    const recorder = new Recorder(device, null)
    for (const [i, row] of rows.entries()) {
      recorder.copy(this.space.normed.values, row * rowBytes, this.input.values, i * rowBytes, rowBytes)
    }
    const project = rows.length <= FEW_ROWS ? this.projectFew : this.project
    project(recorder, size)
    this.argmax(recorder, size)
    if (floats > 0) recorder.copy(this.logits, 0, this.readback, 0, floats * 4)
    recorder.copy(this.winners, 0, this.readback, floats * 4, rows.length * 4)
    recorder.submit()
  }
}
