// A JSON response: at once where it is small, else in pieces between which everything else gets its turn.
import type { Context } from 'hono'
import { otherWork } from '../../server/otherWork.js'
import { jsonPieces } from './jsonPieces.js'

export function jsonAnswer(c: Context, value: unknown): Response {
  const pieces = jsonPieces(value)
  const { value: first = 'null' } = pieces.next()
  let next = pieces.next()
  c.header('content-type', 'application/json')
  if (next.done) return c.body(first)
  const utf8 = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    start: controller => controller.enqueue(utf8.encode(first)),
    async pull(controller) {
      await otherWork()
      controller.enqueue(utf8.encode(next.value as string))
      next = pieces.next()
      if (next.done) controller.close()
    },
  })
  return c.body(body)
}
