// What the engine view shows, gathered from frames: heat of experts, the course of speed, hits and time, and a log of what
// happened. Pure: no drawing, no clock of its own.
import { type EngineFrame, latencyBoundMs } from '#moeflux/apps/browser/page.js'
import type { EngineShape } from '../engines/chatEngine.js'

export interface LogEntry {
  readonly id: number
  readonly time: number // milliseconds since 1970
  readonly text: string
  readonly kind: 'prompt' | 'answer' | 'read' | 'note'
}

const POINTS = 3000
const LOG_ENTRIES = 200
const HALF_LIFE_TOKENS = 24 // heat fades with tokens, not with time: an idle engine keeps its picture
const SECONDS_KEPT = 300

export class EngineHistory {
  readonly heat: Float32Array // [layers, experts], fading
  readonly routed: Float64Array // [layers, experts], tokens since watching began
  resident: Uint8Array // [layers, experts]
  frame: EngineFrame | null = null
  tokens = 0 // since watching began
  readonly times: number[] = [] // seconds since 1970, one per point
  readonly speed: (number | null)[] = [] // tokens per second
  readonly promptSpeed: number[] = []
  readonly isPrompt: boolean[] = [] // a prompt was read
  readonly hitRate: (number | null)[] = [] // 0 to 1
  readonly readRate: (number | null)[] = [] // bytes per second
  readonly phases = new Map<string, (number | null)[]>() // milliseconds per token
  readonly log: LogEntry[] = [] // newest first
  private logged = 0
  private open: OpenEvent | null = null

  constructor(readonly shape: EngineShape) {
    const cells = shape.layers * shape.experts
    this.heat = new Float32Array(cells)
    this.routed = new Float64Array(cells)
    this.resident = new Uint8Array(cells)
  }

  /** The usual speed of answers in the last second of work, of everyone together; null where there was none. */
  get lastSpeed(): number | null {
    return usual(this.speed)
  }

  /** The same of prompts. */
  get lastPromptSpeed(): number | null {
    return usual(this.promptSpeed)
  }

  push(frame: EngineFrame): void {
    const before = this.frame
    this.frame = frame
    this.resident = frame.resident
    const tokens = frame.promptTokens + frame.decodeTokens
    if (tokens > 0) {
      this.fade(tokens)
      frame.routed.forEach((count, cell) => {
        if (count === 0) return
        this.heat[cell] += count
        this.routed[cell] += count
      })
      this.tokens += tokens
    }
    this.addPoint(frame, before, tokens)
    this.addLog(frame, before)
  }

  /** Of the experts that were wanted, those that were in memory: over a frame, or since the model was opened. */
  static hitRate(frame: EngineFrame, before: EngineFrame | null): number | null {
    const hits = frame.stats.expertHits - (before?.stats.expertHits ?? 0)
    const misses = frame.stats.expertMisses - (before?.stats.expertMisses ?? 0)
    return hits + misses > 0 ? hits / (hits + misses) : null
  }

  note(time: number, text: string): void {
    this.addEntry(time, text, 'note')
  }

  private fade(tokens: number): void {
    const factor = 0.5 ** (tokens / HALF_LIFE_TOKENS)
    for (let cell = 0; cell < this.heat.length; cell++) this.heat[cell] *= factor
  }

  private addPoint(frame: EngineFrame, before: EngineFrame | null, tokens: number): void {
    const isIdle = frame.phase === 'idle'
    // Nothing happened between two frames of work: lines must not slope over the pause.
    if (before?.phase === 'idle' && !isIdle) this.addRest(frame.time / 1000 - Math.max(0.02, frame.busySeconds))
    if (isIdle && before !== null && before.phase !== 'idle') this.addRest(before.time / 1000 + 0.02)
    const wall = wallSeconds(frame, before)
    this.times.push(frame.time / 1000)
    this.speed.push(isIdle ? 0 : rateOf(frame.decodeTokens, wall))
    this.promptSpeed.push(rateOf(frame.promptTokens, wall) ?? 0)
    this.isPrompt.push(frame.promptTokens > 0)
    this.hitRate.push(isIdle || before === null ? null : EngineHistory.hitRate(frame, before))
    this.readRate.push(isIdle ? 0 : (rateOf(frame.bytesRead, wall) ?? 0))
    const parts = phaseParts(frame)
    for (const name of parts.keys()) {
      if (!this.phases.has(name)) this.phases.set(name, new Array(this.times.length - 1).fill(null))
    }
    for (const [name, values] of this.phases) {
      values.push(tokens > 0 ? ((parts.get(name) ?? 0) * 1000) / tokens : null)
    }
    const oldest = frame.time / 1000 - SECONDS_KEPT
    while (this.times.length > POINTS || (this.times.length > 2 && this.times[0] < oldest)) {
      const series = [this.speed, this.promptSpeed, this.hitRate, this.readRate, ...this.phases.values()]
      for (const values of [this.times, this.isPrompt, ...series]) values.shift()
    }
  }

  private addRest(time: number): void {
    this.times.push(Math.max(time, this.times.at(-1) ?? 0))
    this.speed.push(0)
    this.promptSpeed.push(0)
    this.isPrompt.push(false)
    this.hitRate.push(null)
    this.readRate.push(0)
    for (const values of this.phases.values()) values.push(null)
  }

  private addLog(frame: EngineFrame, before: EngineFrame | null): void {
    if (before === null) {
      this.addEntry(frame.time, `Watching ${this.shape.model}: ${this.shape.description}`, 'note')
      return
    }
    const open = (this.open ??= { prompt: 0, promptSeconds: 0, decode: 0, decodeSeconds: 0, bytes: 0, misses: 0 })
    open.bytes += frame.bytesRead
    open.misses += frame.stats.expertMisses - before.stats.expertMisses
    const tokens = frame.promptTokens + frame.decodeTokens
    if (frame.phase !== 'idle') {
      open.prompt += frame.promptTokens
      open.decode += frame.decodeTokens
      const wall = wallSeconds(frame, before)
      open.promptSeconds += (wall * frame.promptTokens) / tokens
      open.decodeSeconds += (wall * frame.decodeTokens) / tokens
      return
    }
    this.open = null
    if (open.prompt > 0) {
      this.addEntry(frame.time, `Prompt: ${open.prompt} tokens ${rate(open.prompt, open.promptSeconds)}`, 'prompt')
    }
    if (open.misses > 0) {
      this.addEntry(frame.time, `Read ${open.misses} experts on demand (${megabytes(open.bytes)})`, 'read')
    }
    if (open.decode > 0) {
      this.addEntry(frame.time, `Answer: ${open.decode} tokens ${rate(open.decode, open.decodeSeconds)}`, 'answer')
    }
  }

  private addEntry(time: number, text: string, kind: LogEntry['kind']): void {
    this.log.unshift({ id: ++this.logged, time, text, kind })
    if (this.log.length > LOG_ENTRIES) this.log.pop()
  }
}

interface OpenEvent {
  prompt: number
  promptSeconds: number
  decode: number
  decodeSeconds: number
  bytes: number
  misses: number
}

/** Per second; null where nothing was done. */
function rateOf(amount: number, seconds: number): number | null {
  return amount > 0 && seconds > 0 ? amount / seconds : null
}

/**
 * The time that a frame's work took, with what the server does between two tokens: by it the server counts as well. After a
 * rest only the work itself is known.
 */
function wallSeconds(frame: EngineFrame, before: EngineFrame | null): number {
  return before === null || before.phase === 'idle' ? frame.busySeconds : Math.max(frame.seconds, frame.busySeconds)
}

/** The middle one of the last ten. */
function usual(values: readonly (number | null)[]): number | null {
  const recent: number[] = []
  for (let i = values.length - 1; i >= 0 && recent.length < 10; i--) {
    const value = values[i]
    if (value !== null && value > 0) recent.push(value)
  }
  return recent.sort((a, b) => a - b).at(recent.length >> 1) ?? null
}

/** Seconds by phase; waiting for reads is one of them. */
function phaseParts(frame: EngineFrame): Map<string, number> {
  const parts = new Map(Object.entries(frame.phaseSeconds))
  if (!parts.has('stall')) parts.set('stall', frame.stallSeconds)
  return parts
}

function rate(tokens: number, seconds: number): string {
  return seconds > 0 ? `at ${Math.round(tokens / seconds).toLocaleString('en')} tok/s` : ''
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`
}

/**
 * Milliseconds that so large a share of the reads took at most: the upper end of a step of the engine's histogram, whose
 * steps are each of twice the time.
 */
export function latencyShare(latency: readonly number[], share: number): number {
  const reads = latency.reduce((sum, count) => sum + count, 0)
  let seen = 0
  const step = latency.findIndex(count => {
    seen += count
    return seen >= share * reads
  })
  return latencyBoundMs(Math.max(0, step))
}
