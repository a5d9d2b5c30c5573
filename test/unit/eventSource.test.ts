// What happens to a stream of events whose reader goes.
import { describe, expect, it } from 'vitest'
import { eventSource, type ServerSentEvent } from '#moeflux/server/eventSource.js'

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
  it.each(['comes', 'fails'])('takes it for no fault when the reader goes before a message that then %s', async how => {
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
  })

  it('tells of an error while somebody reads', async () => {
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
})
