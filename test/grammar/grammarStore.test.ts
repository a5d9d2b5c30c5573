// Grammars that are kept: made once for all who ask, given up when nobody waits, forgotten when there are too many.
import { expect, test } from 'vitest'
import type { Program } from '#moeflux/grammar/automaton/program.js'
import { GrammarBuilder } from '#moeflux/grammar/source/grammarBuilder.js'
import { GrammarStore } from '#moeflux/grammar/workers/grammarStore.js'

function program(text: string): Program {
  const builder = new GrammarBuilder()
  return builder.finish(builder.literal(text))
}

test('makes a grammar once, for all who ask at once and later', async () => {
  let drafts = 0
  const store = new GrammarStore(() => {})
  const draft = async () => {
    drafts++
    return program('a')
  }
  const taken = await Promise.all([1, 2, 3].map(() => store.take('a', undefined, draft)))
  taken.push(await store.take('a', undefined, draft))
  expect(new Set(taken.map(grammar => grammar.id)).size).toBe(1)
  expect(drafts).toBe(1)
})

test('stops the work when all who waited have left, and not before', async () => {
  const store = new GrammarStore(() => {})
  let signal: AbortSignal | undefined
  let finish: (program: Program) => void = () => {}
  const draft = (stop: AbortSignal) => {
    signal = stop
    return new Promise<Program>((resolve, reject) => {
      finish = resolve
      stop.addEventListener('abort', () => reject(stop.reason))
    })
  }
  const clients = [new AbortController(), new AbortController()]
  const waits = clients.map(client => store.take('a', client.signal, draft))
  clients[0].abort(new Error('left'))
  await expect(waits[0]).rejects.toThrow('left')
  expect(signal?.aborted).toBe(false)
  clients[1].abort(new Error('left as well'))
  await expect(waits[1]).rejects.toThrow('left as well')
  expect(signal?.aborted).toBe(true)
  // Who comes then begins anew.
  const again = store.take('a', undefined, draft)
  expect(signal?.aborted).toBe(false)
  finish(program('a'))
  expect((await again).program.bytes.length).toBe(1)
})

test('keeps no failure', async () => {
  const store = new GrammarStore(() => {})
  await expect(store.take('a', undefined, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect((await store.take('a', undefined, async () => program('a'))).id).toBe(1)
})

test('forgets the oldest, and tells so when nobody uses it any more', async () => {
  const gone: number[] = []
  const store = new GrammarStore(id => gone.push(id))
  const large = async () => ({ ...program('x'), bytes: new Uint8Array(3 * 2 ** 20) })
  const first = await store.take('1', undefined, large)
  for (let i = 2; i <= 12; i++) (await store.take(String(i), undefined, large)).release()
  expect(gone).toContain(2)
  expect(gone).not.toContain(first.id)
  expect(gone).not.toContain(12)
  first.release()
  first.release()
  expect(gone.filter(id => id === first.id)).toEqual([first.id])
})
