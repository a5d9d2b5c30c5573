// A server whose memory is full: whoever comes too much is told to come back, by every API, and the log hears of it.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { OutOfMemoryError } from '#moeflux/base/errors.js'
import { END_TOKEN } from '../../support/models/scriptedModel.js'
import { type ScriptedServer, scriptedServer } from './scriptedServer.js'
import { postJson } from './sse.js'

let server: ScriptedServer
let isFull = true
const warnings: string[] = []
beforeAll(async () => {
  server = await scriptedServer({
    script: () => {
      if (isFull) throw new OutOfMemoryError('wasm bank 0', 4096, 'memory is full')
      return END_TOKEN
    },
    onWarning: line => warnings.push(line),
  })
})
afterAll(() => server.close())

// A prompt of its own for each: what was answered once needs no memory.
const requests: [path: string, body: (text: string) => object][] = [
  ['/v1/chat/completions', content => ({ messages: [{ role: 'user', content }] })],
  ['/v1/completions', prompt => ({ prompt })],
  ['/v1/responses', input => ({ input })],
  ['/v1/messages', content => ({ messages: [{ role: 'user', content }], max_tokens: 9 })],
]

test.each(requests)('%s', async (path, bodyOf) => {
  for (const stream of [false, true]) {
    const body = { ...bodyOf(`Hi ${path} ${stream}`), stream }
    isFull = true
    const refused = await postJson(server.url + path, body)
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5'])
    const { error } = await refused.json()
    const shape = path === '/v1/messages' ? { type: 'overloaded_error' } : { code: 'out_of_memory' }
    expect(error).toMatchObject({ ...shape, message: expect.stringContaining('memory is full') })
    expect(warnings.at(-1)).toMatch(/^error: OUT_OF_MEMORY: /)
    isFull = false
    const answered = await postJson(server.url + path, body)
    expect(answered.status).toBe(200)
    await answered.text()
    warnings.length = 0
  }
})
