// How far a prompt is, between a session's callbacks and whoever reads its events.
import { describe, expect, test } from 'vitest'
import type { SessionEvent } from '#moeflux/chat/events.js'
import { withPromptProgress } from '#moeflux/chat/promptProgress.js'

const turn = () => new Promise(resolve => setImmediate(resolve))
const text = (words: string): SessionEvent => ({ type: 'text', text: words })

describe('progress of a prompt', () => {
  test('comes before the answer, in order, and the latest alone to those who read slowly', async () => {
    const stream = withPromptProgress(async function* (tell) {
      tell(0, 300, 40)
      await turn()
      for (const done of [100, 200, 300]) tell(done, 300, 40)
      await turn()
      yield text('a')
      tell(1, 1, 1) // too late to be of interest
      yield text('b')
    })
    const seen: unknown[] = []
    for await (const event of stream) {
      seen.push(event.type === 'promptProgress' ? [event.done, event.total, event.cached] : event)
    }
    expect(seen).toEqual([[0, 300, 40], [300, 300, 40], text('a'), text('b')])
  })

  test('misses nothing that is told while the reader is busy', async () => {
    const stream = withPromptProgress(async function* (tell) {
      for (const done of [0, 1, 2]) {
        tell(done, 2, 0)
        await turn()
        await turn()
      }
      yield text('a')
    })
    expect((await stream.next()).value).toMatchObject({ done: 0 })
    for (let i = 0; i < 9; i++) await turn()
    expect((await stream.next()).value).toMatchObject({ done: 2 })
    expect((await stream.next()).value).toEqual(text('a'))
  })

  test('passes on an error, and leaves the events when it is left', async () => {
    const failing = withPromptProgress(async function* (tell) {
      tell(0, 9, 0)
      yield* []
      throw new Error('the disk is gone')
    })
    expect((await failing.next()).value).toMatchObject({ done: 0, total: 9 })
    await expect(failing.next()).rejects.toThrow('the disk is gone')

    let isLeft = false
    const left = withPromptProgress(async function* () {
      try {
        yield text('a')
        yield text('b')
      } finally {
        isLeft = true
      }
    })
    await left.next()
    await left.return(undefined)
    expect(isLeft).toBe(true)
  })
})
