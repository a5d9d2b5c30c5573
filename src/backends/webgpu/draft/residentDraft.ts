// Guesses of the head one after the other without leaving the GPU, by the kernels of single tokens: the kernel that finds the
// best token writes it where the next guess reads its own. For a GPU that holds all experts: nothing can miss.
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { makeChecked, readMapped } from '../../../gpu/device/gpuMemory.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'
import { type Op, sequence } from '../../../gpu/device/op.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'
import { argmaxOp } from '../../../ops/argmax/argmax.gpu.js'
import { matVecOp } from '../../../ops/matmul/matVec.gpu.js'
import { MOST_GUESSES } from '../../backend.js'
import { type DecodeOptions, wholeLayer } from '../decode/decodeLayer.js'
import type { Head } from '../decode/lmHead.js'
import { PreparedCommands } from '../decode/preparedCommands.js'
import { headOf, type ResidentWeights } from '../memory/residentWeights.js'
import { type StepInfo, TOKEN_WORDS, type TokenBuffers } from '../memory/stepInfo.js'
import { MAX_DECODE_BATCH } from '../memory/workspace.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import { headInputOp } from './draftHeadOps.js'
import { type Guesser, type GuessOrders, type GuessRow, rowsAt, TOKENS_BYTES } from './draftRunner.js'

export class DraftChain implements Guesser {
  private readonly gpu: GpuContext
  private readonly parts: LayerParts
  private readonly info: StepInfo
  private readonly head: Head
  private readonly profiler: Profiler | null
  private readonly after: readonly TokenBuffers[] // of the guesses after the first, and of the token after the last
  private readonly readback: GPUBuffer // [guesses, tokens]
  private guesses!: readonly Op[]
  private rows: readonly GuessRow[] = []
  private made = 0
  private logits = new Float32Array(0) // [rows, vocab], of the last guess where somebody chooses
  private readonly prepared: PreparedCommands<GPUCommandBuffer>

  private constructor(parts: LayerParts, info: StepInfo, head: Head, profiler: Profiler | null) {
    this.gpu = parts.gpu
    this.parts = parts
    this.prepared = new PreparedCommands([parts.states, parts.kv, parts.slots])
    this.info = info
    this.head = head
    this.profiler = profiler
    const { device } = parts.gpu
    const anglesBytes = MAX_DECODE_BATCH * parts.config.rope.dims * 4
    this.after = Array.from({ length: MOST_GUESSES }, () => ({
      tokenInfo: storageBuffer(device, TOKENS_BYTES, 'guessed tokens'),
      angles: storageBuffer(device, anglesBytes, 'angles of guesses'),
    }))
    const usage = bufferUsage.mapRead | bufferUsage.copyDst
    this.readback = device.createBuffer({ label: 'guesses', size: MOST_GUESSES * TOKENS_BYTES, usage })
  }

  /** `parts`, `options`: those of decoding. */
  static async create(
    parts: LayerParts,
    options: DecodeOptions,
    weights: ResidentWeights,
    info: StepInfo,
    head: Head,
    profiler: Profiler | null,
  ): Promise<DraftChain> {
    const { gpu, config, space } = parts
    const chain = await makeChecked(gpu.device, 'guesses', () => new DraftChain(parts, info, head, profiler))
    const { norm, layer } = headOf(weights)
    const project = {
      status: space.status,
      outStride: config.vocabSize,
      norm: { weight: norm, eps: config.rmsNormEps },
      label: 'lmHead',
    }
    const source = { rows: space.hidden, width: config.hiddenSize }
    chain.guesses = await Promise.all(
      chain.after.map(async ({ tokenInfo: next }, index) => {
        const own = index === 0 ? parts : { ...parts, space: { ...space, ...chain.after[index - 1] } }
        return sequence(
          await Promise.all([
            headInputOp(own, weights, index === 0 ? 'first' : 'next', 'single'),
            wholeLayer(own, weights, layer, config.numLayers, options),
            matVecOp(gpu, weights.lmHead, space.hidden, head.logits, project),
            argmaxOp(gpu, head.logits, config.vocabSize, source, MAX_DECODE_BATCH, next, TOKEN_WORDS),
          ]),
        )
      }),
    )
    return chain
  }

  begin(rows: readonly GuessRow[]): void {
    this.rows = rows
    this.made = 0
    this.info.write(rows)
    const most = Math.max(...rows.map(({ count }) => count))
    for (const [i, buffers] of this.after.entries()) {
      if (i + 1 < most) this.info.writeTokens(rowsAt(rows, i + 1, new Array(rows.length).fill(0)), buffers)
    }
  }

  async extend(guesses: number, { signal, onSubmitted, wantsLogits }: GuessOrders): Promise<Uint32Array[]> {
    signal?.throwIfAborted()
    const from = this.made
    const end = from + guesses
    const { slots, config } = this.parts
    const kind = `${this.rows.length} ${from} ${end} ${wantsLogits}`
    const record = () => this.record(from, end, wantsLogits)
    slots.submit([this.prepared.take(kind) ?? record()], config.expertLayers.length)
    this.made = end
    const rows = this.rows.length
    const reading = this.gpu.waits.until(`guesses ${kind}`, () => this.read(rows, guesses, wantsLogits))
    reading.catch(() => {}) // awaited below
    onSubmitted?.(this.after.slice(from, end).map(({ tokenInfo }) => tokenInfo))
    // For the next time, while the GPU is busy with these.
    if (this.profiler === null) this.prepared.put(kind, record())
    const words = await reading
    await this.profiler?.collect()
    return Array.from({ length: guesses }, (_, guess) =>
      Uint32Array.from(this.rows, (_, row) => words[(guess * MAX_DECODE_BATCH + row) * TOKEN_WORDS]),
    )
  }

  async readLogits(row: number): Promise<Float32Array> {
    const { vocabSize } = this.parts.config
    return this.logits.subarray(row * vocabSize, (row + 1) * vocabSize)
  }

  put(row: number, token: number): void {
    const { tokenInfo } = this.after[this.made - 1]
    this.gpu.device.queue.writeBuffer(tokenInfo, row * TOKEN_WORDS * 4, new Uint32Array([token]))
  }

  /** What comes back of the last submission: tokens, and logits where they are wanted, both at once. */
  private async read(rows: number, guesses: number, wantsLogits: boolean): Promise<Uint32Array> {
    const floats = rows * this.parts.config.vocabSize
    if (wantsLogits && this.logits.length < floats) this.logits = new Float32Array(floats)
    const [tokens] = await Promise.all([
      readMapped(this.readback, guesses * TOKENS_BYTES),
      wantsLogits && this.head.takeRows(rows, logits => this.logits.set(logits)),
    ])
    return new Uint32Array(tokens)
  }

  private record(from: number, end: number, wantsLogits: boolean): GPUCommandBuffer {
    const recorder = new Recorder(this.gpu.device, this.profiler)
    const size = { tokens: this.rows.length, runs: this.rows.length }
    for (let guess = from; guess < end; guess++) this.guesses[guess](recorder, size)
    for (let guess = from; guess < end; guess++) {
      const { tokenInfo } = this.after[guess]
      recorder.copy(tokenInfo, 0, this.readback, (guess - from) * TOKENS_BYTES, TOKENS_BYTES)
    }
    if (wantsLogits) this.head.recordRows(recorder, this.rows.length)
    return recorder.finish() as GPUCommandBuffer
  }
}
