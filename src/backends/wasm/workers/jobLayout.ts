// Where each word of a job board is. In front words with fixed places, then those of the team's
// barrier, then lists whose sizes follow from the model and the threads, then floats and bytes. Who
// may write which word when: docs/dev/workers.md. Pure.
import { MOST_GUESSES } from '../../backend.js'
import { MOST_RARE_TOKENS } from '../../draftVocabulary.js'
import { TEAM_WORDS } from './team.js'

export interface BoardShape {
  readonly threads: number
  readonly chunkTokens: number
  readonly layers: number
  readonly fullLayers: number
  readonly moeLayers: number // with experts
  readonly experts: number
  readonly headRows: number
}

/** Words with fixed places. */
export const WORD = {
  stop: 2,
  abort: 3, // 1: the running job should stop
  workers: 15,
  rows: 16,
  runs: 17,
  embed: 18,
  firstLayer: 19,
  endLayer: 20,
  headCount: 21,
  argmax: 22,
  probe: 23,
  forget: 24, // 1: the job begins with no expert in memory
  ranks: 25,
  entryCount: 26,
  finished: 27, // the last job that ended well
  drafts: 28, // 1: rows, 2: guess
  passes: 29,
  common: 30, // tokens whose logits are wanted: ids below it, -1 for all
  rareCount: 31,
  waveKind: 32,
  waveCount: 33,
  team: 48, // the first of TEAM_WORDS
} as const

/**
 * Words of a worker's bell: one cache line with the job that it was given last, and whether it
 * sleeps.
 */
export const BELL_WORDS = 16
export const ASLEEP = 1 // after the bell's first word

/**
 * Words of a run: first row, rows, position, sequence, first page, whether it has guesses, first
 * row that counts.
 */
export const RUN_WORDS = 7
export const RUN_PAGE_BASE = 4

/** Words of an expert in a wave: bank, address, first pair, pairs. */
export const ENTRY_WORDS = 4

/** What the leader's time is counted under. */
export const PHASES = ['mixer', 'router', 'experts', 'dense', 'head', 'stall'] as const

/** What the leader counts of experts. */
export const COUNTERS = [
  'expertHits',
  'expertMisses',
  'prefetchHits',
  'prefetchReads',
  'prefetchWastedBytes',
  'stallSeconds',
  'expertSlotsUsed',
] as const

export interface BoardLayout {
  // Lists, by their first word:
  readonly bells: number // [threads, BELL_WORDS]
  readonly tokens: number // [chunkTokens]
  readonly runs: number // [chunkTokens, RUN_WORDS]
  readonly states: number // [chunkTokens, layers, 2]
  readonly heads: number // [headRows]
  readonly argmaxes: number // [MOST_GUESSES, headRows]
  readonly bests: number // [threads, headRows]
  readonly entries: number // [experts, ENTRY_WORDS]
  readonly pages: number // [pages, fullLayers]
  readonly rares: number // [MOST_RARE_TOKENS]
  readonly words: number // all of them
  // By their first byte:
  readonly seconds: number // f64 [PHASES]
  readonly counters: number // f64 [COUNTERS]
  readonly waited: number // f64 [1]
  readonly resident: number // u8 [moeLayers, experts]
  readonly size: number // bytes of the board
}

export function layoutBoard(shape: BoardShape): BoardLayout {
  let at = WORD.team + TEAM_WORDS
  const list = (words: number) => {
    const start = at
    at += words
    return start
  }
  const lists = {
    bells: list(shape.threads * BELL_WORDS),
    tokens: list(shape.chunkTokens),
    runs: list(shape.chunkTokens * RUN_WORDS),
    states: list(shape.chunkTokens * shape.layers * 2),
    heads: list(shape.headRows),
    argmaxes: list(shape.headRows * MOST_GUESSES),
    bests: list(shape.threads * shape.headRows),
    entries: list(shape.experts * ENTRY_WORDS),
    pages: list(boardPages(shape) * shape.fullLayers),
    rares: list(MOST_RARE_TOKENS),
  }
  const words = at + (at % 2)
  const seconds = words * 4
  const counters = seconds + PHASES.length * 8
  const waited = counters + COUNTERS.length * 8
  const resident = waited + 8
  return { ...lists, words, seconds, counters, waited, resident, size: resident + shape.moeLayers * shape.experts }
}

/** Pages that the rows of one job can touch at most: every run may begin and end inside a page. */
function boardPages(shape: BoardShape): number {
  return shape.chunkTokens * 2 + 1
}
