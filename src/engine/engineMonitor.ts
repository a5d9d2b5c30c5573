// What a model does while it runs, as frames for someone who looks on: which experts tokens were routed to, which are in
// memory, where the time went. Steps between two frames are merged, so that a fast model is not slowed down by being
// watched; nothing is computed while nobody watches. It neither draws nor sends anything.
import type { Backend, StepOutput, StepRun } from '../backends/backend.js'
import type { ModelStats } from '../backends/stats.js'
import { expertCount } from '../model/sizes.js'
import { type EngineFrame, type FrameStats, phaseOf } from './engineFrame.js'

type Watched = Pick<Backend, 'config' | 'residency'> & { stats(): FrameStats }
type Listener = (frame: EngineFrame) => void

const FRAME_MS = 100
const IDLE_MS = 500

export class EngineMonitor {
  private readonly listeners = new Set<Listener>()
  private sequence = 0
  private lastFrame = 0 // performance.now()
  private before: ModelStats | null = null
  private prompt = 0 // tokens since the last frame
  private decode = 0
  private routed: Uint32Array // [layers, experts]
  private timer: ReturnType<typeof setTimeout> | null = null
  private timerDue = 0 // performance.now()
  private readonly cells: number

  constructor(
    private readonly backend: Watched,
    private readonly expertsPerToken: number,
  ) {
    this.cells = expertCount(backend.config)
    this.routed = new Uint32Array(0) // made when someone watches
  }

  get isWatched(): boolean {
    return this.listeners.size > 0
  }

  /** The first frame comes in a moment and tells how things stand. */
  watch(listener: Listener): () => void {
    const own: Listener = frame => listener(frame)
    if (!this.isWatched) this.begin()
    this.listeners.add(own)
    this.schedule(0)
    return () => {
      this.listeners.delete(own)
      if (!this.isWatched) this.stop()
    }
  }

  /** Tells of a step that was evaluated with its routing. */
  stepDone(runs: readonly StepRun[], outputs: readonly StepOutput[]): void {
    runs.forEach(({ phase, tokens }, i) => {
      if (phase === 'prompt') this.prompt += tokens.length
      else this.decode += outputs[i].kept
      this.count(outputs[i].routing, tokens.length)
    })
    this.schedule(this.lastFrame + FRAME_MS - performance.now())
  }

  close(): void {
    this.listeners.clear()
    this.stop()
  }

  private begin(): void {
    this.before = this.backend.stats()
    this.lastFrame = performance.now()
    this.forget()
  }

  private stop(): void {
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
    this.before = null
    this.routed = new Uint32Array(0)
  }

  private forget(): void {
    this.prompt = 0
    this.decode = 0
    this.routed = new Uint32Array(this.cells)
  }

  private count(routing: Uint16Array | null, tokens: number): void {
    if (routing === null) return
    const { moeLayers, numExperts } = this.backend.config
    const perLayer = tokens * this.expertsPerToken
    for (let place = 0; place < moeLayers.length; place++) {
      for (let i = place * perLayer; i < (place + 1) * perLayer; i++) this.routed[place * numExperts + routing[i]]++
    }
  }

  /** Makes sure of a frame within `delayMs`. */
  private schedule(delayMs: number): void {
    const due = performance.now() + Math.max(0, delayMs)
    if (this.timer && this.timerDue <= due) return
    if (this.timer) clearTimeout(this.timer)
    this.timerDue = due
    this.timer = setTimeout(() => this.emit(), Math.max(0, delayMs))
    ;(this.timer as { unref?: () => void }).unref?.() // in Node: looking on keeps no process alive
  }

  private emit(): void {
    this.timer = null
    if (!this.isWatched) return
    const now = performance.now()
    const stats = this.backend.stats()
    const before = this.before ?? stats
    const { prompt, decode } = this
    const frame: EngineFrame = {
      sequence: ++this.sequence,
      time: Date.now(),
      seconds: (now - this.lastFrame) / 1000,
      busySeconds: busySeconds(stats) - busySeconds(before),
      phase: phaseOf(prompt, decode),
      promptTokens: prompt,
      decodeTokens: decode,
      routed: this.routed,
      resident: this.backend.residency(),
      phaseSeconds: difference(stats.phaseSeconds, before.phaseSeconds),
      stallSeconds: stats.stallSeconds - before.stallSeconds,
      bytesRead: stats.bytesRead - before.bytesRead,
      stats,
    }
    this.before = stats
    this.lastFrame = now
    this.forget()
    if (frame.phase !== 'idle') this.schedule(IDLE_MS)
    for (const listener of [...this.listeners]) listener(frame)
  }
}

function busySeconds({ computeSeconds, stallSeconds }: ModelStats): number {
  return computeSeconds + stallSeconds
}

function difference(now: Readonly<Record<string, number>>, before: Readonly<Record<string, number>>) {
  return Object.fromEntries(Object.entries(now).map(([name, value]) => [name, value - (before[name] ?? 0)]))
}
