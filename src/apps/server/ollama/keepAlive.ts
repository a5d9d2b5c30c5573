// How long a model stays in memory after a request, as ollama's clients say it: seconds, or a time like '5m' or '1h30m'. Below zero
// means for ever.
import { parseDuration } from '../../../base/quantities.js'

/** Milliseconds; null where it is no such time. */
export function keepAliveMs(time: number | string): number | null {
  const ms = typeof time === 'number' ? time * 1000 : signedMs(time.trim())
  return ms !== null && ms < 0 ? Number.POSITIVE_INFINITY : ms
}

function signedMs(time: string): number | null {
  const ms = parseDuration(time.replace(/^[+-]/, ''))
  return ms !== null && time.startsWith('-') ? -ms : ms
}
