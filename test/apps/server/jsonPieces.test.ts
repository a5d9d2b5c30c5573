// JSON that is written in pieces: the same text as JSON.stringify gives.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { eventSource } from '#moeflux/apps/server/eventSource.js'
import { jsonPieces, LazyList } from '#moeflux/apps/server/jsonAnswer.js'

describe('JSON in pieces', () => {
  test('is what JSON.stringify gives', () => {
    const any = fc.oneof(fc.jsonValue(), fc.array(fc.jsonValue(), { minLength: 33, maxLength: 60 }))
    const holes = fc.dictionary(fc.string(), fc.constantFrom(undefined, null, [undefined, 1], Number.NaN))
    fc.assert(
      fc.property(fc.oneof(any, holes), value => {
        expect([...jsonPieces(value)].join('')).toBe(JSON.stringify(value))
      }),
    )
  })

  test('comes in pieces that are never long, whatever is in it', () => {
    const text = 'Once "upon" a time 😀\n\ud800'.repeat(20_000)
    const value = { text, list: Array.from({ length: 5000 }, (_, i) => ({ i, text: 'dog' })), inner: { text } }
    const pieces = [...jsonPieces(value)]
    expect(JSON.parse(pieces.join(''))).toEqual(value)
    expect(Math.max(...pieces.map(piece => piece.length))).toBeLessThan(300_000)
    expect(pieces.length).toBeGreaterThan(10)
  })

  test('makes the entries of a lazy list as they are written', () => {
    let made = 0
    const write = (i: number) => ({ i, n: ++made })
    const pieces = jsonPieces({
      list: new LazyList(
        Array.from({ length: 50_000 }, (_, i) => i),
        write,
      ),
      none: new LazyList([], write),
    })
    const first = pieces.next().value as string
    expect(made).toBeLessThan(10_000)
    const { list, none } = JSON.parse(first + [...pieces].join(''))
    expect(list).toHaveLength(50_000)
    expect(none).toEqual([])
  })

  test('makes one event, and comments come only between events', async () => {
    const value = { text: 'x'.repeat(300_000) }
    let next = () => {}
    async function* messages() {
      yield { event: 'a', data: jsonPieces(value) }
      await new Promise<void>(resolve => (next = resolve))
      yield { data: 'end' }
    }
    let comment = () => {}
    const nothing = () => {}
    const source = await eventSource(messages(), {
      ...{ onError: () => null, cancel: nothing, end: nothing, disconnect: nothing },
      signal: new AbortController().signal,
      onComment: send => {
        comment = send
      },
    })
    const chunks: string[] = []
    for await (const chunk of source as unknown as AsyncIterable<Uint8Array>) {
      chunks.push(new TextDecoder().decode(chunk))
      const waits = chunks.join('').endsWith('\n\n')
      setTimeout(
        () => {
          if (chunks.some(text => text.startsWith(':'))) next()
          else comment()
        },
        waits ? 5 : 0,
      )
    }
    const text = chunks.join('')
    expect(text).toBe(`event: a\ndata: ${JSON.stringify(value)}\n\n: keep-alive\n\ndata: end\n\n`)
    expect(chunks.length).toBeGreaterThan(5)
  })
})
