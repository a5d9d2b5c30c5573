// Evaluates runs of any length through all layers with the prompt's kernels. Layers whose experts are all in slots are
// recorded back to back; where some may be missing, the routing comes back to the host once per layer, and the experts
// come in waves.
import type { ModelConfig } from '../../model/config.js'
import { embedOp } from './embed.js'
import type { ExpertSlots } from './expertSlots.js'
import type { GpuContext } from './gpuContext.js'
import { bufferUsage } from './gpuFlags.js'
import { readMapped } from './gpuMemory.js'
import type { Op, StepSize } from './op.js'
import { type LayerParts, type PromptLayer, promptLayer } from './promptLayer.js'
import { type Profiler, Recorder } from './recorder.js'
import type { ResidentWeights } from './residentWeights.js'
import type { Workspace } from './workspace.js'

/** Looks at buffers between the stages of a layer. */
export interface LayerTap {
  afterMixer(layer: number): Promise<void>
  afterRouter(layer: number): Promise<void>
  afterLayer(layer: number): Promise<void>
}

const SUBMIT_LAYERS = 4

export class PromptPass {
  readonly #gpu: GpuContext
  readonly #config: ModelConfig
  readonly #space: Workspace
  readonly #slots: ExpertSlots
  readonly #choiceReadback: GPUBuffer
  readonly #profiler: Profiler | null
  #embed!: Op
  #layers!: readonly PromptLayer[]

  private constructor(parts: LayerParts, profiler: Profiler | null) {
    this.#gpu = parts.gpu
    this.#config = parts.config
    this.#space = parts.space
    this.#slots = parts.slots
    this.#profiler = profiler
    const size = parts.config.numLayers * parts.space.shape.maxTokens * parts.space.shape.k * 4
    const usage = bufferUsage.mapRead | bufferUsage.copyDst
    this.#choiceReadback = parts.gpu.device.createBuffer({ label: 'choice readback', size, usage })
  }

  static async create(parts: LayerParts, weights: ResidentWeights, profiler: Profiler | null): Promise<PromptPass> {
    const pass = new PromptPass(parts, profiler)
    const { gpu, space } = parts
    const layers = weights.layers.map((layer, i) => promptLayer(parts, layer, i))
    pass.#embed = await embedOp(gpu, weights.embed, space.tokenInfo, space.hidden)
    pass.#layers = await Promise.all(layers)
    return pass
  }

  recorder(): Recorder {
    return new Recorder(this.#gpu.device, this.#profiler)
  }

  /**
   * Through layers [first, end), then what `last` records. All is submitted when this returns: commands that were recorded
   * because their experts are in slots must not wait until those are given away.
   */
  async run(
    recorder: Recorder,
    size: StepSize,
    options: { first?: number; end?: number; signal?: AbortSignal; tap?: LayerTap; last?: () => void } = {},
  ): Promise<void> {
    const { first = 0, end = this.#config.numLayers, signal, tap, last } = options
    for (let layer = first; layer < end; layer++) {
      const ops = this.#layers[layer]
      ops.mixer(recorder, size)
      if (tap) {
        recorder.submit()
        await tap.afterMixer(layer)
      }
      ops.router(recorder, size)
      if (tap) {
        recorder.submit()
        await tap.afterRouter(layer)
      }
      if (this.#slots.isResident(layer)) ops.experts(recorder, size)
      else {
        recorder.submit()
        const wanted = new Set(await this.readChoice(size.tokens, layer))
        signal?.throwIfAborted()
        for await (const _ of this.#slots.waves(
          layer,
          [...wanted].sort((a, b) => a - b),
          signal,
        )) {
          ops.expertsOfWave(recorder, size)
          recorder.submit()
        }
      }
      ops.combine(recorder, size)
      // The GPU begins while the host records the rest.
      if (layer % SUBMIT_LAYERS === 0) recorder.submit()
      if (this.#profiler !== null) {
        recorder.submit()
        await this.#profiler.collect()
      }
      if (tap) {
        recorder.submit()
        await tap.afterLayer(layer)
      }
    }
    last?.()
    recorder.submit()
  }

  embed(recorder: Recorder, size: StepSize): void {
    this.#embed(recorder, size)
  }

  /** The experts of one layer's tokens, [tokens, K]. */
  async readChoice(tokens: number, layer: number): Promise<Uint32Array> {
    const { maxTokens, k } = this.#space.shape
    const bytes = tokens * k * 4
    const recorder = new Recorder(this.#gpu.device, null)
    recorder.copy(this.#space.choice, layer * maxTokens * k * 4, this.#choiceReadback, 0, bytes)
    recorder.submit()
    return new Uint32Array(await readMapped(this.#choiceReadback, bytes))
  }

  /** The experts of all layers, [layers, tokens, K]. */
  async readRouting(tokens: number): Promise<Uint16Array> {
    const { maxTokens, k } = this.#space.shape
    const { numLayers } = this.#config
    const row = tokens * k
    const recorder = new Recorder(this.#gpu.device, null)
    for (let layer = 0; layer < numLayers; layer++) {
      recorder.copy(this.#space.choice, layer * maxTokens * k * 4, this.#choiceReadback, layer * row * 4, row * 4)
    }
    recorder.submit()
    return Uint16Array.from(new Uint32Array(await readMapped(this.#choiceReadback, numLayers * row * 4)))
  }
}
