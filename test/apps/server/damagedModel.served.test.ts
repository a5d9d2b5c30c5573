// Model files that are damaged while they are served: an error of the server with its own code in every API, streaming or
// not, greedy or sampled, and never a word of text. Once the files are whole again the next answer is the right one.
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type RunningServer, serve } from '#moeflux/apps/server/serve.js'
import type { Backend } from '#moeflux/backends/backend.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import { type Antidote, NAN, overwrite, poisonExperts } from '../../support/faults/poison.js'
import { demoModel } from '../../support/models/models.js'
import { parseEvents, postJson } from './sse.js'

const text = 'Tell me a story about a little dog'
const messages = [{ role: 'user', content: text }]
const apis: Record<string, Record<string, unknown>> = {
  '/v1/chat/completions': { messages, max_tokens: 60 },
  '/v1/completions': { prompt: 'Once upon a time', max_tokens: 60 },
  '/v1/responses': { input: text, max_output_tokens: 60 },
  '/v1/messages': { messages, max_tokens: 60 },
}
const LAYER = 3

describe('weights that are not finite, in a folder without checksums', () => {
  let folder: string
  let model: Model
  let server: RunningServer
  const log: string[] = []
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'moeflux-served-'))
    cpSync(demoModel, folder, { recursive: true, filter: path => !path.endsWith('moeflux.json') })
    model = await openModel(folder, { backend: 'wasm', threads: 1 })
    server = await serve(model, { port: 0, onLog: line => log.push(line), onWarning: line => log.push(line) })
  })
  afterAll(async () => {
    await server.stop(0)
    await model.close()
    rmSync(folder, { recursive: true, force: true })
  })

  const damage = async (): Promise<Antidote> => {
    const heal = await poisonExperts(folder, LAYER, 'up', 'scales', NAN)
    backend().forgetExperts()
    return heal
  }
  const backend = () => (model as unknown as { compute: Backend }).compute
  /** Runs `act` once, before the `count`th of the coming steps, which waits for it. */
  const beforeStep = (count: number, act: () => Promise<void>): void => {
    const target = backend()
    const step = target.step.bind(target)
    let left = count
    target.step = async (...args) => {
      if (--left === 0) {
        target.step = step
        await act()
      }
      return await step(...args)
    }
  }
  const ask = (path: string, more: object) => postJson(server.url + path, { ...apis[path], ...more })

  describe.each(Object.keys(apis))('%s', path => {
    test.each([0, 1])('is a 500 with its own code at temperature %i, and right again after', async temperature => {
      const wholeAnswer = async () => withoutIds(await (await ask(path, { temperature, seed: 5 })).json())
      const want = await wholeAnswer()
      const heal = await damage()
      log.length = 0
      const response = await ask(path, { temperature, seed: 6 })
      const { error } = await response.json()
      expect([response.status, error.code]).toEqual([500, 'non_finite_output'])
      expect(error.message).toMatch(/^the engine computed values that are not finite/)
      // One line that names where, without a stack.
      expect(log.filter(line => /NON_FINITE_OUTPUT: .* layer 3, experts? [\d, ]+/.test(line))).toHaveLength(1)
      expect(log.filter(line => line.includes('\n'))).toEqual([])
      expect((await (await fetch(`${server.url}/health`)).json()).status).toBe('ok')
      heal()
      if (temperature === 0) expect(await wholeAnswer()).toEqual(want)
      else expect((await ask(path, { temperature })).status).toBe(200)
    })

    test('in the middle of a stream: what was right stays, the last event is the error', async () => {
      const antidotes: Antidote[] = []
      beforeStep(12, async () => void antidotes.push(await damage()))
      const response = await ask(path, { stream: true, temperature: 0 })
      expect(response.status).toBe(200)
      const body = await response.text()
      for (const heal of antidotes) heal()
      expect(antidotes).toHaveLength(1)
      const events = parseEvents(body).map(({ data }) => data)
      expect(events).not.toContain('[DONE]')
      expect(events.length).toBeGreaterThan(2)
      expect(events.at(-1)).toContain('non_finite_output')
      expect(body).not.toContain('!!')
      expect(events.filter(data => data.includes('non_finite_output'))).toHaveLength(1)
    })
  })
})

describe('expert files that are overwritten while they are served, in a folder with checksums', () => {
  let folder: string
  let model: Model
  let server: RunningServer
  const log: string[] = []
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'moeflux-served-'))
    cpSync(demoModel, folder, { recursive: true })
    // Room for few: experts are read all the time, as those of a model that is larger than memory.
    model = await openModel(folder, { backend: 'wasm', threads: 1, expertMemory: 2 * 4 * 57_344 })
    server = await serve(model, { port: 0, onLog: line => log.push(line), onWarning: line => log.push(line) })
  })
  afterAll(async () => {
    await server.stop(0)
    await model.close()
    rmSync(folder, { recursive: true, force: true })
  })

  /** Another model's bytes, of the same size, in every expert file. */
  const overwriteExperts = (): Antidote => {
    const names = readdirSync(join(folder, 'packed_experts')).map(name => join(folder, 'packed_experts', name))
    const before = names.map(name => readFileSync(name))
    for (const [i, name] of names.entries()) overwrite(name, before[(i + 1) % names.length])
    return () => {
      for (const [i, name] of names.entries()) overwrite(name, before[i])
    }
  }

  test.each(Object.keys(apis))('%s: a 500 with its code and not a word, then the right answer again', async path => {
    const ask = (more: object = {}) => postJson(server.url + path, { ...apis[path], temperature: 0, ...more })
    const whole = async () => withoutIds(await (await ask()).json())
    const want = await whole()
    const heal = overwriteExperts()
    log.length = 0
    for (const temperature of [0, 1]) {
      const response = await ask({ temperature })
      const { error } = await response.json()
      expect([response.status, error.code]).toEqual([500, 'expert_read'])
      expect(error.message).toMatch(/^expert \d+ of layer \d+: its bytes do not match their checksum/)
    }
    expect(log.filter(line => /EXPERT_READ: expert \d+ of layer \d+/.test(line))).toHaveLength(2)
    heal()
    expect(await whole()).toEqual(want)
  })
})

/** An answer without what is new each time. */
function withoutIds(body: unknown): unknown {
  const usual = /"(id|created|created_at|cached_tokens|cache_read_input_tokens|input_tokens)":("[^"]*"|\d+)/g
  return JSON.parse(JSON.stringify(body).replace(usual, '"$1":0'))
}
