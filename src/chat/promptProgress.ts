// How far the prompt has been read, as events before the first one of the answer: what a session tells by calling back, for
// those who pass on streams. Who reads slowly is told the latest only.
import type { SessionEvent } from './events.js'

export interface PromptProgress {
  readonly type: 'promptProgress'
  readonly done: number // tokens, of `total`
  readonly total: number // tokens that are not in the cache
  readonly cached: number
  readonly ms: number // since the prompt was begun
}

type Tell = (done: number, total: number, cached: number) => void

/** The events of `open`, and what it tells of its prompt before the first of them. */
export async function* withPromptProgress(
  open: (tell: Tell) => AsyncIterable<SessionEvent>,
): AsyncGenerator<SessionEvent | PromptProgress> {
  let latest: PromptProgress | null = null
  let begun = 0
  let wake = () => {}
  const tell: Tell = (done, total, cached) => {
    begun ||= performance.now()
    latest = { type: 'promptProgress', done, total, cached, ms: performance.now() - begun }
    wake()
  }
  const events = open(tell)[Symbol.asyncIterator]()
  try {
    const first = events.next()
    first.catch(() => {}) // whoever reads may have left
    for (;;) {
      const news = new Promise<null>(resolve => {
        wake = () => resolve(null)
      })
      if (latest === null && (await Promise.race([first, news])) !== null) break
      const told = latest
      latest = null // there may be more while this is being read
      if (told !== null) yield told
    }
    for (let event = await first; !event.done; event = await events.next()) yield event.value
  } finally {
    await events.return?.()
  }
}
