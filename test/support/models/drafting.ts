// A backend that drafts, for the tests of a describe block, and the steps of a draft round on it.
import { afterAll, beforeAll, expect } from 'vitest'
import type { Backend, GuessedRows, SequenceState } from '#moeflux/backends/backend.js'
import { type DraftRow, openDraftBackend } from './draftBackends.js'

export function drafting(row: DraftRow) {
  let backend: Backend
  let close: () => Promise<void>
  beforeAll(async () => {
    const opened = await openDraftBackend(row)
    backend = opened.backend
    close = opened.close
  })
  afterAll(() => close())
  return {
    get backend() {
      return backend
    },
    async prompt(tokens: readonly number[]): Promise<SequenceState> {
      const sequence = backend.createSequence()
      if (tokens.length > 0) await backend.step([{ sequence, tokens, phase: 'prompt', output: 'none' }])
      return sequence
    },
    async draft(sequence: SequenceState, token: number, count = 3): Promise<readonly number[]> {
      return (await backend.draft!([{ sequence, token, count }]))[0].guesses
    },
    /** Checks guesses behind `token`; keeps those that agree with the model, as greedy decoding does. */
    async check(sequence: SequenceState, token: number, guesses: readonly number[]) {
      let next = -1
      const keep = ({ argmax }: GuessedRows) => {
        let kept = 1
        while (kept <= guesses.length && guesses[kept - 1] === argmax[kept - 1]) kept++
        next = argmax[kept - 1]
        return kept
      }
      const run = { sequence, tokens: [token, ...guesses], phase: 'decode', output: 'argmax', keep } as const
      const [{ kept, argmax }] = await backend.step([run])
      expect(argmax, 'the best token at the last kept one').toBe(next)
      return { kept, next }
    },
  }
}
