// What happens to a stream of events whose reader goes, and that it says the same however its bytes are cut.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { eventSource, type ServerSentEvent } from '#moeflux/apps/server/eventSource.js'
import { eventData } from '../../../src/apps/web/engines/serverEngine.js'

async function sourceOf(messages: AsyncGenerator<ServerSentEvent>) {
  const told: unknown[] = []
  const calls: string[] = []
  const source = await eventSource(messages, {
    onError: error => {
      told.push(error)
      return null
    },
    signal: new AbortController().signal,
    cancel: () => calls.push('cancel'),
    end: () => calls.push('end'),
    disconnect: () => calls.push('disconnect'),
  })
  return { reader: source.getReader(), told, calls }
}

describe('eventSource', () => {
  test.each(['comes', 'fails'])(
    'takes it for no fault when the reader goes before a message that then %s',
    async how => {
      let go = () => {}
      const gone = new Promise<void>(resolve => (go = resolve))
      async function* messages(): AsyncGenerator<ServerSentEvent> {
        yield { data: 'first' }
        await gone
        if (how === 'fails') throw new Error('cut off')
        yield { data: 'late' }
      }
      const { reader, told, calls } = await sourceOf(messages())
      await reader.read()
      await new Promise(resolve => setTimeout(resolve, 10)) // it pulls the next one now
      const cancelled = reader.cancel().catch(() => {})
      go()
      await cancelled
      await new Promise(resolve => setTimeout(resolve, 10))
      expect(told).toEqual([])
      expect(calls).toEqual(['cancel'])
    },
  )

  test('tells of an error while somebody reads', async () => {
    async function* messages(): AsyncGenerator<ServerSentEvent> {
      yield { data: 'first' }
      throw new Error('broken')
    }
    const { reader, told, calls } = await sourceOf(messages())
    await reader.read()
    expect((await reader.read()).done).toBe(true)
    expect(told).toEqual([new Error('broken')])
    expect(calls).toEqual(['end'])
  })

  test('is read by the page as it was written, wherever its bytes are cut', async () => {
    const word = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('\n\n', '\r\n', 'data: ', '😀', '\u2028', ': x'),
    )
    const message = fc.record({ event: fc.constantFrom(undefined, 'delta'), data: fc.array(word, { maxLength: 4 }) })
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        async (sent, cuts) => {
          const texts = sent.map(({ data }) => JSON.stringify(data))
          async function* messages(): AsyncGenerator<ServerSentEvent> {
            for (const [i, { event }] of sent.entries()) yield { event, data: texts[i] }
          }
          const { reader } = await sourceOf(messages())
          const pieces: Uint8Array[] = []
          for (let read = await reader.read(); !read.done; read = await reader.read()) pieces.push(read.value)
          const bytes = Buffer.concat(pieces)
          const points = cuts.map(cut => cut % (bytes.length + 1)).sort((a, b) => a - b)
          const body = new ReadableStream<Uint8Array>({
            start(controller) {
              ;[0, ...points].forEach((point, i) => {
                controller.enqueue(bytes.subarray(point, points[i] ?? bytes.length))
              })
              controller.close()
            },
          })
          const received: string[] = []
          for await (const data of eventData(body)) received.push(data)
          expect(received).toEqual(texts)
        },
      ),
    )
  })
})
