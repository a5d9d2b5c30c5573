// The life of a server process: its start, a crowd that comes and goes, its log, and its end.
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { demoSource, repository } from '../../support/models/packedFiles.js'
import { moeflux } from '../cli/moeflux.js'
import { startServer } from './serverProcess.js'
import { postJson, sentEvents } from './sse.js'

const chat = { messages: [{ role: 'user', content: 'Tell me a story about a little dog' }] }
const run = promisify(execFile)

describe('a server', () => {
  test('says where it is, logs a line per request, and refuses a port that is taken in one line', async () => {
    const server = await startServer()
    expect(server.log()).toContain(`${server.url}/v1`)
    await (await postJson(`${server.url}/v1/chat/completions`, { ...chat, max_tokens: 4 })).json()
    await (await postJson(`${server.url}/v1/chat/completions`, { messages: 'x\ny' })).json()
    await expect.poll(() => server.log()).toMatch(/\d+ cached \+ \d+ new.* tok\/s/)
    await expect.poll(() => server.log()).toMatch(/^.*POST \/v1\/chat\/completions 400: messages/m)
    const second = await moeflux(['serve', '--port', String(server.port)])
    expect(second).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: cannot listen on .* in use.*\n$/) })
    const { code, milliseconds } = await server.stop()
    expect(code).toBe(0)
    expect(milliseconds).toBeLessThan(10_000)
  })

  test('warns where the network can use it without a key, also when the key is an empty variable', async () => {
    const server = await startServer(['--host', '0.0.0.0'], { MOEFLUX_API_KEY: '' })
    await expect.poll(() => server.log()).toContain('warning: anyone who reaches this address')
    expect(await server.stop()).toMatchObject({ code: 0 })
  })

  test('lets answers finish when it is stopped, and takes no new ones', async () => {
    const server = await startServer()
    const response = await postJson(`${server.url}/v1/chat/completions`, { ...chat, max_tokens: 60, stream: true })
    const stopped = server.stop()
    await expect.poll(() => server.log()).toContain('stopping')
    const late = await postJson(`${server.url}/v1/chat/completions`, { ...chat, max_tokens: 2 }).then(
      refused => refused.status,
      () => 'refused',
    )
    expect([503, 'refused']).toContain(late)
    const events = await sentEvents(response)
    expect(events.at(-1)?.data).toBe('[DONE]')
    expect(await stopped).toMatchObject({ code: 0 })
  })

  test('completes raw text of a model without a chat template, and says of the rest what is missing', async () => {
    const home = mkdtempSync(join(tmpdir(), 'moeflux-serve-'))
    const model = join(home, 'plain')
    cpSync(demoSource, model, { recursive: true, filter: file => !file.endsWith('.jinja') })
    const settings = JSON.parse(readFileSync(join(model, 'tokenizer_config.json'), 'utf8'))
    writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ ...settings, chat_template: undefined }))
    const server = await startServer(['--model', model], { MOEFLUX_HOME: home })
    for (const path of ['/v1/chat/completions', '/v1/messages', '/v1/responses']) {
      const body = path === '/v1/responses' ? { input: 'Hi' } : { ...chat, max_tokens: 2 }
      const refused = await postJson(`${server.url}${path}`, body)
      expect(refused.status).toBe(400)
      expect((await refused.json()).error.message).toContain('has no chat template')
    }
    const raw = await postJson(`${server.url}/v1/completions`, { prompt: 'Once upon a time', max_tokens: 4 })
    expect((await raw.json()).choices[0].text.length).toBeGreaterThan(0)
    await server.stop()
    rmSync(home, { recursive: true, force: true })
  })

  test('keeps prefixes of conversations beyond a restart', async () => {
    const store = mkdtempSync(join(tmpdir(), 'moeflux-serve-'))
    const cached: number[] = []
    for (let start = 0; start < 2; start++) {
      const server = await startServer(['--snapshot-dir', store])
      const messages = [{ role: 'system', content: 'You tell long stories. '.repeat(4) }, ...chat.messages]
      const answer = await (await postJson(`${server.url}/v1/chat/completions`, { messages, max_tokens: 2 })).json()
      cached.push(answer.usage.prompt_tokens_details.cached_tokens)
      await server.stop()
    }
    expect(cached[0]).toBe(0)
    expect(cached[1]).toBeGreaterThan(20)
    rmSync(store, { recursive: true, force: true })
  })

  test('serves a crowd that comes and goes without a stuck place or an error', async () => {
    const script = join(repository, 'src/lab/bench/loadTest.mjs')
    const args = [script, '--clients', '24', '--seconds', '5', '--leave', '0.4', '--json', '--', '--max-queue', '8']
    const { stdout } = await run(process.execPath, args, { timeout: 50_000 })
    const report = JSON.parse(stdout)
    expect(Object.keys(report.outcomes).filter(name => !['answered', 'left', '429'].includes(name))).toEqual([])
    expect(report.outcomes.answered).toBeGreaterThan(3)
    expect(report).toMatchObject({ activeAtEnd: 0, exitCode: 0 })
    expect(report.stopMs).toBeLessThan(10_000)
  })
})
