// What a step writes for its kernels: per token its id, position and sequence, per run its state slots, the page lists
// and the rotary angles.
import type { KvPool } from '../../../gpu/memory/kvPool.js'
import type { ModelConfig } from '../../../model/config.js'
import { type RopeFrequencies, ropeFrequencies } from '../../../model/ropeFrequencies.js'
import { PAGE_TOKENS } from '../../kvPages.js'
import type { Workspace } from './workspace.js'

/** Words of one token, see token.wgsl. */
export const TOKEN_WORDS = 8

/** Where tokens and their rotary angles are written to. */
export type TokenBuffers = Pick<Workspace, 'tokenInfo' | 'angles'>

export interface PlannedRun {
  readonly tokens: readonly number[]
  readonly position: number // of the first token
  readonly pages: readonly number[]
  readonly stateIn: number
  readonly stateOut: number // after the last token
  /** The state after each token, where each has one; the last of them is stateOut. */
  readonly states?: readonly number[]
  /** The first position that the head for drafts has a row of. */
  readonly firstRow?: number
}

export class StepInfo {
  private readonly device: GPUDevice
  private readonly config: ModelConfig
  private readonly space: Workspace
  private readonly kv: KvPool
  private readonly rope: RopeFrequencies

  constructor(device: GPUDevice, config: ModelConfig, space: Workspace, kv: KvPool) {
    this.device = device
    this.config = config
    this.space = space
    this.kv = kv
    this.rope = ropeFrequencies(config.rope)
  }

  write(runs: readonly PlannedRun[]): void {
    const { queue } = this.device
    const { count, runWords, pages } = this.writeTokens(runs, this.space)
    queue.writeBuffer(this.space.step, 0, new Uint32Array([count, runs.length, 0, 0]))
    queue.writeBuffer(this.space.runInfo, 0, runWords)
    queue.writeBuffer(this.kv.pageTable, 0, new Uint32Array(pages))
    queue.writeBuffer(this.space.status, 0, new Uint32Array(4))
  }

  /** The tokens alone: the runs and their pages are those of the last `write`. */
  writeTokens(runs: readonly PlannedRun[], into: TokenBuffers) {
    const count = runs.reduce((sum, run) => sum + run.tokens.length, 0)
    const tokens = new Uint32Array(count * TOKEN_WORDS)
    const runWords = new Uint32Array(runs.length * 4)
    const angles = new Float32Array(count * this.config.rope.dims)
    const pages: number[] = []
    let token = 0
    for (const [r, run] of runs.entries()) {
      const end = run.position + run.tokens.length
      // Kernels trust the table: a position without a page would be written over somebody else's.
      if (end > run.pages.length * PAGE_TOKENS) throw new Error(`position ${end} of ${run.pages.length} pages`)
      runWords.set([token, run.tokens.length, run.stateIn, run.stateOut], r * 4)
      for (const [i, id] of run.tokens.entries()) {
        const position = run.position + i
        const [stateIn, stateOut] = statesOf(run, i)
        const words = [id, position, r, i, pages.length, stateIn, stateOut, run.firstRow ?? 0]
        tokens.set(words, token * TOKEN_WORDS)
        this.writeAngles(angles, token, position)
        token++
      }
      pages.push(...run.pages)
    }
    this.device.queue.writeBuffer(into.tokenInfo, 0, tokens)
    this.device.queue.writeBuffer(into.angles, 0, angles)
    return { count, runWords, pages }
  }

  private writeAngles(angles: Float32Array, token: number, position: number): void {
    const base = token * this.config.rope.dims
    const { frequencies, magnitude } = this.rope
    for (let i = 0; i < frequencies.length; i++) {
      const angle = position * frequencies[i]
      angles[base + 2 * i] = Math.cos(angle) * magnitude
      angles[base + 2 * i + 1] = Math.sin(angle) * magnitude
    }
  }
}

/** Before and after token `i` of a run. */
function statesOf({ stateIn, stateOut, states }: PlannedRun, i: number): readonly [number, number] {
  if (states === undefined) return [stateIn, stateOut]
  return [i === 0 ? stateIn : states[i - 1], states[i]]
}
