// The wasm backend as the engine sees it: turns steps into jobs for the compute workers and keeps the promise that a step
// is atomic. The math is in forward.ts and runs in workers; this thread only prepares state, posts, waits and commits.
import {
  BackendUnavailableError,
  ClosedError,
  DeviceLostError,
  NonFiniteError,
  OptionError,
} from '../../base/errors.js'
import { noReads } from '../../experts/readers/readCounters.js'
import type { PackedModel } from '../../files/packed/packedModel.js'
import type { ModelConfig } from '../../model/config.js'
import { areFinite, joinFloats } from '../../model/floats.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import type { Backend, ProbeRequest, ProbeResult, SequenceState, StepOptions, StepOutput, StepRun } from '../backend.js'
import type { ModelStats } from '../stats.js'
import { HEAD_ROWS, PRIVATE_ROWS } from './memory/scratch.js'
import { openRuntime, type WasmRuntime } from './openRuntime.js'
import type { HostedOptions, WasmHost, WasmInternals } from './platform.js'
import { TeamGovernor } from './teamGovernor.js'
import { WasmDrafter } from './wasmDrafter.js'
import { probeModel } from './wasmProbe.js'
import { WasmSequence } from './wasmSequence.js'
import type { ActiveRun, WasmSteps } from './wasmSteps.js'
import type { JobParts } from './workers/jobBoard.js'
import { COUNTERS, PHASES } from './workers/jobLayout.js'

export async function openWasmBackend(
  packed: PackedModel,
  options: HostedOptions,
  internals: WasmInternals = {},
): Promise<Backend> {
  const host = options.wasmHost ?? (await findHost())
  return new WasmBackend(await openRuntime(packed, options, internals, host), internals.commonTokens)
}

async function findHost(): Promise<WasmHost> {
  if (globalThis.process?.versions?.node === undefined) {
    throw new BackendUnavailableError('wasm', 'there is no way to start threads here; in a browser use moeflux/browser')
  }
  const { nodeHost } = await import('./nodePlatform.js')
  return nodeHost()
}

const STALLS = COUNTERS.indexOf('stallSeconds')
const STALLED_SHARE = 0.05 // of a step that counts as one that waits for experts

interface RunRows {
  readonly logits: Float32Array | null
  readonly argmax: Int32Array
}

export class WasmBackend implements Backend, WasmSteps {
  readonly name = 'wasm'
  readonly config: ModelConfig
  readonly description: string
  readonly chunkTokens: number
  private readonly counts = { promptTokens: 0, decodeTokens: 0, steps: 0, seconds: 0 }
  readonly draft?: Backend['draft']
  readonly mostGuesses: number
  readonly noDrafts: string | null
  private readonly drafter: WasmDrafter | null
  private readonly governor: TeamGovernor
  private predictionKeys = 0
  private readerLoss: DeviceLostError | null = null
  private closing: Promise<void> | null = null
  private turn: Promise<unknown> = Promise.resolve()

  constructor(
    readonly runtime: WasmRuntime,
    commonTokens?: number,
  ) {
    const { model } = runtime
    this.config = model.config
    this.chunkTokens = model.chunkTokens
    this.mostGuesses = runtime.mostGuesses
    this.noDrafts = runtime.noDrafts
    this.governor = new TeamGovernor(runtime.threads, runtime.processors)
    const threads = `${runtime.threads} ${runtime.threads === 1 ? 'thread' : 'threads'}`
    this.drafter = model.draftHead === null ? null : new WasmDrafter(this, commonTokens)
    const { drafter } = this
    if (drafter) this.draft = (requests, options = {}) => this.inTurn(() => drafter.guess(requests, options.signal))
    this.description = `wasm, ${threads}, ${runtime.simd} SIMD, ${model.precision}`
  }

  get isTrying(): boolean {
    return this.governor.isTrying
  }

  get failure(): DeviceLostError | null {
    const { pool, ring } = this.runtime
    if (pool.failure) return pool.failure
    if (ring && ring.lostReaders > 0) {
      this.readerLoss ??= new DeviceLostError('wasm', 'a thread that reads experts died; open the model again')
    }
    return this.readerLoss
  }

  createSequence(): WasmSequence {
    this.checkOpen()
    return new WasmSequence(
      this.runtime.store,
      () => ++this.predictionKeys,
      // Memory that is not shared moves when it grows, and a step that waits for experts has views of it.
      async work => (this.runtime.isShared ? work() : await this.inTurn(async () => work())),
    )
  }

  step(runs: readonly StepRun[], options: StepOptions = {}): Promise<StepOutput[]> {
    return this.inTurn(() => this.evaluate(runs, options))
  }

  probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    return this.inTurn(() => probeModel(this, sequence as WasmSequence, request))
  }

  /** One job at a time: the board and the scratch are one. */
  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.turn.then(() => {
      this.checkOpen()
      if (this.failure) throw this.failure
      return work()
    })
    this.turn = result.catch(() => {})
    return result
  }

  private async evaluate(runs: readonly StepRun[], options: StepOptions): Promise<StepOutput[]> {
    options.signal?.throwIfAborted()
    const startedAt = performance.now()
    const active = this.begin(runs)
    try {
      const heads = runs.map(({ output, tokens, keep }, i) => {
        const last = active[i].rowStart + tokens.length - 1
        if (output === 'none') return []
        return output === 'all' || keep ? tokens.map((_, t) => active[i].rowStart + t) : [last]
      })
      const drafter = options.head === false ? null : this.drafter
      const rows = await this.runStep(active, runs, heads, drafter, options.signal)
      const inside = active.map((run, i) => this.readInside(run, runs[i].hidden === true, options.routing))
      // Nothing can fail from here on.
      const kept = await Promise.all(runs.map(({ keep, tokens }, i) => keep?.(rows[i]) ?? tokens.length))
      active.forEach((run, i) => {
        const { sequence, next, guesses } = run
        sequence.commit(kept[i], next, guesses ? kept[i] - 1 : 0, drafter?.stateAfter(run, kept[i]) ?? null)
      })
      this.counts.steps++
      runs.forEach(({ phase }, i) => {
        this.counts[phase === 'prompt' ? 'promptTokens' : 'decodeTokens'] += kept[i]
      })
      return rows.map(({ logits, argmax }, i) => {
        const last = argmax[active[i].guesses ? kept[i] - 1 : argmax.length - 1] ?? null
        return { logits, argmax: last, kept: kept[i], ...inside[i] }
      })
    } catch (error) {
      for (const { sequence, next } of active) sequence.discard(next)
      throw options.signal?.aborted ? error : (this.failure ?? error)
    } finally {
      this.counts.seconds += (performance.now() - startedAt) / 1000
    }
  }

  /** The layers and the logits of all wanted rows, HEAD_ROWS of them per job. */
  private async runStep(
    active: readonly ActiveRun[],
    runs: readonly StepRun[],
    heads: readonly (readonly number[])[],
    drafter: WasmDrafter | null,
    signal: AbortSignal | undefined,
  ): Promise<RunRows[]> {
    const { vocabSize, numLayers } = this.config
    const { board, pool } = this.runtime
    const wanted = heads.flatMap((rows, run) => rows.map((row, i) => ({ run, row, i })))
    const logits = runs.map(({ output, into }, run) => {
      if (output === 'none' || output === 'argmax') return null
      return output === 'last' && into ? into : new Float32Array(heads[run].length * vocabSize)
    })
    const argmax = heads.map(list => new Int32Array(list.length))
    this.writeRuns(active)
    drafter?.writeBefore(active)
    const rows = active.reduce((sum, run) => sum + run.tokens.length, 0)
    const workers = this.workersFor(rows)
    const startedAt = performance.now()
    const waitedBefore = board.waited[0]
    const stalledBefore = board.counters[STALLS]
    for (let at = 0; at === 0 || at < wanted.length; at += HEAD_ROWS) {
      const block = wanted.slice(at, at + HEAD_ROWS)
      const layers = at === 0
      board.writeParts({
        embed: layers,
        firstLayer: 0,
        endLayer: layers ? numLayers : 0,
        headRows: block.map(({ row }) => row),
        argmax: true,
        probe: false,
        drafts: layers && drafter ? 'rows' : undefined,
      })
      await pool.run(workers, signal)
      if (layers) this.checkHidden(rows)
      block.forEach(({ run, i }, headRow) => {
        const token = board.argmaxOf(headRow)
        if (token < 0) throw new NonFiniteError()
        logits[run]?.set(this.runtime.logitsRow(headRow), i * vocabSize)
        argmax[run][i] = token
      })
    }
    const seconds = (performance.now() - startedAt) / 1000
    if (rows <= PRIVATE_ROWS) {
      const waited = (board.waited[0] - waitedBefore) / seconds
      const isStalled = board.counters[STALLS] - stalledBefore > STALLED_SHARE * seconds
      this.governor.stepDone({ seconds, waited, rows, isStalled })
    } else this.governor.interrupt()
    return runs.map((_, run) => ({ logits: logits[run], argmax: argmax[run] }))
  }

  workersFor(rows: number): number {
    return rows <= PRIVATE_ROWS ? this.governor.sizeFor(rows) : this.runtime.threads
  }

  /** The rows after the last layer: a few thousand floats each, beside the megabytes of weights that made them. */
  private checkHidden(rows: number): void {
    const { hidden } = this.runtime.model.scratch
    for (let row = 0; row < rows; row++) {
      if (!areFinite(this.runtime.rowView(hidden, row, this.config.hiddenSize))) throw new NonFiniteError()
    }
  }

  /** Makes room in every sequence, or in none. */
  begin(runs: readonly Pick<StepRun, 'sequence' | 'tokens' | 'keep'>[]): ActiveRun[] {
    const total = runs.reduce((sum, run) => sum + run.tokens.length, 0)
    if (total > this.chunkTokens) throw new OptionError('tokens', total, `at most ${this.chunkTokens} in a step`)
    const active: ActiveRun[] = []
    let rowStart = 0
    try {
      for (const { sequence, tokens, keep } of runs) {
        const own = sequence as WasmSequence
        const guesses = keep !== undefined
        const next = own.prepare(tokens.length, guesses ? tokens.length : 1)
        active.push({ sequence: own, tokens, rowStart, guesses, next })
        rowStart += tokens.length
      }
    } catch (error) {
      for (const { sequence, next } of active) sequence.discard(next)
      throw error
    }
    return active
  }

  writeRuns(active: readonly ActiveRun[]): void {
    const { board, store } = this.runtime
    let rows = 0
    let pageBase = 0
    active.forEach(({ sequence, tokens, rowStart, guesses, next }, run) => {
      const { length: position, predictionKey } = sequence
      const job = { rowStart, rows: tokens.length, position, sequence: predictionKey, pageBase, guesses }
      board.writeRun(run, job, tokens)
      pageBase += this.writePages(sequence, rowStart, position, pageBase)
      next.forEach((_, row) => {
        const sets = sequence.setAddresses(next, row)
        store.linearLayers.forEach((layer, i) => {
          board.writeState(rowStart + row, layer, ...sets[i])
        })
      })
      rows += tokens.length
    })
    board.writeRows(rows, active.length)
  }

  /** The tables of a run's keys and values, and its pages from `position` on; how many these are. */
  writePages(sequence: WasmSequence, rowStart: number, position: number, pageBase: number): number {
    const { board, store } = this.runtime
    const pages = sequence.pagesFrom(position)
    const tables = sequence.tableAddresses
    store.fullLayers.forEach((layer, i) => {
      board.writeState(rowStart, layer, ...tables[i])
      pages.forEach((page, n) => {
        board.writePage(pageBase + n, i, store.addressesOf(page)[i])
      })
    })
    return pages.length
  }

  async runParts(parts: JobParts, signal?: AbortSignal): Promise<void> {
    this.runtime.board.writeParts(parts)
    await this.runtime.pool.run(this.runtime.threads, signal)
  }

  /** What a run's rows left behind in the layers, as far as it is asked for. */
  private readInside(
    { rowStart, tokens }: ActiveRun,
    wantsHidden: boolean,
    asked: StepOptions['routing'],
  ): Pick<StepOutput, 'routing' | 'routerWeights' | 'hidden'> {
    const { runtime } = this
    const { expertsPerToken: k, scratch, norm } = runtime.model
    const { moeLayers, hiddenSize, rmsNormEps } = this.config
    const size = asked ? moeLayers.length * tokens.length * k : 0
    const routing = asked ? new Uint16Array(size) : null
    const routerWeights = asked === 'weights' ? new Float32Array(size) : undefined
    const rows = [rowStart * k, (rowStart + tokens.length) * k] as const
    for (let layer = 0; asked && layer < moeLayers.length; layer++) {
      const at = layer * tokens.length * k
      routing?.set(runtime.routing(layer).subarray(...rows), at)
      routerWeights?.set(runtime.routerWeights(layer).subarray(...rows), at)
    }
    if (!wantsHidden) return { routing, routerWeights }
    const weight = runtime.homeVector(norm, hiddenSize)
    const normed = tokens.map((_, t) =>
      rmsNorm(runtime.rowView(scratch.hidden, rowStart + t, hiddenSize), weight, rmsNormEps),
    )
    return { routing, routerWeights, hidden: joinFloats(normed) }
  }

  stats(): ModelStats {
    const { board, ring, plan } = this.runtime
    const { promptTokens, decodeTokens, steps, seconds } = this.counts
    const counters = Object.fromEntries(COUNTERS.map((name, i) => [name, board.counters[i]])) as Record<
      (typeof COUNTERS)[number],
      number
    >
    const reads = ring?.totals() ?? noReads(0)
    return {
      tokens: promptTokens + decodeTokens,
      promptTokens,
      decodeTokens,
      steps,
      ...counters,
      bytesRead: reads.bytes,
      readSeconds: reads.seconds,
      readBusySeconds: reads.busySeconds,
      readLatencyMs: [...reads.latency],
      computeSeconds: Math.max(0, seconds - counters.stallSeconds),
      phaseSeconds: Object.fromEntries(PHASES.map((phase, i) => [phase, board.seconds[i]])),
      residentBytes: plan.residentBytes,
      expertSlots: plan.slots.length,
      expertMemory: plan.slots.length * plan.slotBytes,
      tiers: null,
    }
  }

  async loaded(): Promise<void> {}

  forgetExperts(): void {
    this.runtime.board.forgetExperts()
  }

  residency(): Uint8Array {
    const { moeLayers, numExperts } = this.config
    return this.runtime.board.resident.slice(0, moeLayers.length * numExperts)
  }

  close(): Promise<void> {
    this.closing ??= this.runtime.close()
    return this.closing
  }

  private checkOpen(): void {
    if (this.closing) throw new ClosedError('model')
  }
}
