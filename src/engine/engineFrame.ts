// What the engine did in a moment, for who looks on; and two frames in a row as one, for who cannot take every frame.
import type { ModelStats } from '../backends/stats.js'
import type { DraftStats } from './draftGovernor.js'

export interface EngineFrame {
  readonly sequence: number // of frames of this model, from 1
  readonly time: number // milliseconds since 1970
  readonly seconds: number // since the last frame
  readonly busySeconds: number // of them, wall time of steps
  /** What was evaluated since the last frame; 'idle': nothing for a while. */
  readonly phase: 'prompt' | 'decode' | 'mixed' | 'idle'
  readonly promptTokens: number // evaluated since the last frame
  readonly decodeTokens: number
  readonly routed: Uint32Array // [layers with experts, experts], tokens routed since the last frame
  readonly resident: Uint8Array // [layers with experts, experts], 1: in memory
  readonly phaseSeconds: Readonly<Record<string, number>> // since the last frame
  readonly stallSeconds: number // since the last frame
  readonly bytesRead: number // since the last frame
  readonly stats: FrameStats
}

/** What the model counts, and what became of guesses where it makes some. */
export interface FrameStats extends ModelStats {
  readonly drafts?: DraftStats | null
}

export function mergeFrames(first: EngineFrame, second: EngineFrame): EngineFrame {
  const promptTokens = first.promptTokens + second.promptTokens
  const decodeTokens = first.decodeTokens + second.decodeTokens
  const phases = new Set([...Object.keys(first.phaseSeconds), ...Object.keys(second.phaseSeconds)])
  return {
    ...second,
    seconds: first.seconds + second.seconds,
    busySeconds: first.busySeconds + second.busySeconds,
    phase: phaseOf(promptTokens, decodeTokens),
    promptTokens,
    decodeTokens,
    routed: first.routed.map((count, cell) => count + second.routed[cell]),
    phaseSeconds: Object.fromEntries(
      [...phases].map(name => [name, (first.phaseSeconds[name] ?? 0) + (second.phaseSeconds[name] ?? 0)]),
    ),
    stallSeconds: first.stallSeconds + second.stallSeconds,
    bytesRead: first.bytesRead + second.bytesRead,
  }
}

export function phaseOf(promptTokens: number, decodeTokens: number): EngineFrame['phase'] {
  if (promptTokens > 0) return decodeTokens > 0 ? 'mixed' : 'prompt'
  return decodeTokens > 0 ? 'decode' : 'idle'
}
