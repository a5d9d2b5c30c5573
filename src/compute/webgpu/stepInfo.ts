// What a step writes for its kernels: per token its id, position and sequence, per run its state slots, the page lists
// and the rotary angles.
import type { ModelConfig } from '../../model/config.js'
import { type RopeFrequencies, ropeFrequencies } from '../../model/ropeFrequencies.js'
import { PAGE_TOKENS } from './attentionShape.js'
import type { KvPool } from './kvPool.js'
import type { Workspace } from './workspace.js'

export interface PlannedRun {
  readonly tokens: readonly number[]
  readonly position: number // of the first token
  readonly pages: readonly number[]
  readonly stateIn: number
  readonly stateOut: number
}

export class StepInfo {
  readonly #device: GPUDevice
  readonly #config: ModelConfig
  readonly #space: Workspace
  readonly #kv: KvPool
  readonly #rope: RopeFrequencies

  constructor(device: GPUDevice, config: ModelConfig, space: Workspace, kv: KvPool) {
    this.#device = device
    this.#config = config
    this.#space = space
    this.#kv = kv
    this.#rope = ropeFrequencies(config.rope)
  }

  write(runs: readonly PlannedRun[]): void {
    const count = runs.reduce((sum, run) => sum + run.tokens.length, 0)
    const tokens = new Uint32Array(count * 8)
    const runWords = new Uint32Array(runs.length * 4)
    const angles = new Float32Array(count * this.#config.rope.dims)
    const pages: number[] = []
    let token = 0
    for (const [r, run] of runs.entries()) {
      const end = run.position + run.tokens.length
      // Kernels trust the table: a position without a page would be written over somebody else's.
      if (end > run.pages.length * PAGE_TOKENS) throw new Error(`position ${end} of ${run.pages.length} pages`)
      runWords.set([token, run.tokens.length, run.stateIn, run.stateOut], r * 4)
      for (const [i, id] of run.tokens.entries()) {
        const position = run.position + i
        tokens.set([id, position, r, i, pages.length, run.stateIn, run.stateOut, 0], token * 8)
        this.#writeAngles(angles, token, position)
        token++
      }
      pages.push(...run.pages)
    }
    const { queue } = this.#device
    queue.writeBuffer(this.#space.step, 0, new Uint32Array([count, runs.length, 0, 0]))
    queue.writeBuffer(this.#space.tokenInfo, 0, tokens)
    queue.writeBuffer(this.#space.runInfo, 0, runWords)
    queue.writeBuffer(this.#space.angles, 0, angles)
    queue.writeBuffer(this.#kv.pageTable, 0, new Uint32Array(pages))
    queue.writeBuffer(this.#space.status, 0, new Uint32Array(4))
  }

  #writeAngles(angles: Float32Array, token: number, position: number): void {
    const base = token * this.#config.rope.dims
    const { frequencies, magnitude } = this.#rope
    for (const [i, frequency] of frequencies.entries()) {
      const angle = position * frequency
      angles[base + 2 * i] = Math.cos(angle) * magnitude
      angles[base + 2 * i + 1] = Math.sin(angle) * magnitude
    }
  }
}
