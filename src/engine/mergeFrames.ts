// Two frames in a row as one, for someone who cannot take every frame.
import type { EngineFrame } from './engineMonitor.js'

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
