// The prompt of a completion: raw text or token ids, without turns. Its states are kept and looked for at multiples of a number of
// tokens instead.
import { OptionError } from '../base/errors.js'
import { StoreWait } from '../stores/storeWait.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'
import type { Landing, Prompt } from './prompt.js'
import { promptTooLong } from './promptBuilder.js'

const GRID = 256 // tokens
const MOST_BOUNDARIES = 8

/** What cannot fit is refused before it is encoded to its end, or copied. */
export async function rawIds(
  prompt: string | readonly number[],
  workers: TextWorkers,
  contextLength: number,
  signal: AbortSignal,
): Promise<number[]> {
  if (typeof prompt !== 'string') {
    if (prompt.length >= contextLength) throw promptTooLong(prompt.length, contextLength)
    return [...prompt]
  }
  const { ids, past } = await workers.encode(prompt, {}, contextLength - 1, signal)
  if (past !== null) throw promptTooLong(past.tokens, contextLength, past.isAtLeast)
  return Array.from(ids)
}

export function rawPrompt(ids: readonly number[], scope: string, hasStore: boolean): Prompt {
  if (ids.length === 0) throw new OptionError('prompt', 'no tokens', 'at least one token')
  return {
    ids,
    text: '',
    mark: '',
    sections: [],
    landings: rawLandings(ids.length, hasStore),
    boundaries: hasStore ? rawBoundaries(ids.length) : [],
    scope,
    insideThinking: false,
    hasOwnIds: false,
    wait: new StoreWait(),
    isRepeated: async () => false,
  }
}

/** When raw text goes on, its last token may become part of another one: the place to go on from is before it. */
function rawLandings(length: number, onGrid: boolean): Landing[] {
  const last = Math.floor((length - 2) / GRID) * GRID
  const grid: Landing[] = onGrid && last > 0 ? [{ position: last, landmark: 'breakpoint' }] : []
  const end: Landing = { position: length, landmark: 'prompt' }
  return length > 1 ? [...grid, { position: length - 1, landmark: 'promptEnd' }, end] : [end]
}

/** Where a store may have a state of raw text that began like this. */
function rawBoundaries(length: number): number[] {
  const last = Math.floor(length / GRID)
  return Array.from({ length: Math.min(MOST_BOUNDARIES, last) }, (_, i) => (last - i) * GRID)
}
