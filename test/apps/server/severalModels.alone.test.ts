// One server with three models and room for two: the demo, and tiny ones of two other families.
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { demoModelPath, listModels, openModel, removeModel } from '#moeflux/index.js'
import { packTinyChat } from '../../support/models/tinyChats.js'
import { seededRandom } from '../../support/random.js'
import { moeflux } from '../cli/moeflux.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson, sentEvents } from './sse.js'

const home = mkdtempSync(join(tmpdir(), 'moeflux-models-'))
const place = (name: string) => join(home, name)
const names = ['first', 'second', 'third']
const answersOf = new Map<string, string>() // of each model when it is alone
const chat = (model: string | undefined, more: object = {}) => ({
  model,
  messages: [{ role: 'user', content: 'Tell me a story' }],
  max_tokens: 3,
  temperature: 0,
  ...more,
})
let server: ServerProcess

beforeAll(async () => {
  symlinkSync(demoModelPath(), place('first'))
  await packTinyChat('qwen3_moe', 'hermes', place('second'))
  await packTinyChat('qwen3_next', 'qwen3_coder', place('third'))
  const models = names.flatMap(name => ['--model', place(name)])
  server = await startServer([...models, '--max-loaded', '2', '--expert-memory', '20MB'])
})

afterAll(async () => {
  await server.stop()
  rmSync(home, { recursive: true, force: true })
})

describe('a server with three models', () => {
  test('lists them, loads none before it is asked, and is ready', async () => {
    const { data } = await (await fetch(`${server.url}/v1/models`)).json()
    expect(data.map((model: { id: string; state: string }) => [model.id, model.state])).toEqual(
      names.map(name => [name, 'unloaded']),
    )
    expect(data[0].context_length).toBeGreaterThan(100)
    expect((await fetch(`${server.url}/ready`)).status).toBe(200)
    expect(await server.metric('moeflux_models_loaded')).toBe(0)
  })

  test('says in a stream that the model is being loaded, and then answers', async () => {
    const response = await postJson(`${server.url}/v1/chat/completions`, chat('first', { stream: true }))
    const text = await response.text()
    expect(text).toMatch(/^: loading "first"\n\n/)
    const events = await sentEvents(new Response(text))
    expect(events.at(-1)?.data).toBe('[DONE]')
    expect(JSON.parse(events[0].data).model).toBe('first')
  })

  test('answers sixteen clients that ask for any of them, with two in memory at most', async () => {
    for (const name of names) {
      const model = await openModel(place(name), { backend: 'wasm', threads: 1 })
      const { text } = await model
        .createSession()
        .chat({ ...chat(name), maxTokens: 3 })
        .answer()
      answersOf.set(name, text)
      await model.close()
    }
    expect(new Set(answersOf.values()).size).toBe(3)
    const random = seededRandom(3)
    const answers: string[] = []
    let most = 0
    const client = async () => {
      for (let i = 0; i < 2; i++) {
        const model = names[Math.floor(random() * 3)]
        const response = await postJson(`${server.url}/v1/chat/completions`, chat(model))
        const body = await response.json()
        expect([response.status, body.model]).toEqual([200, model])
        expect(body.choices[0].message.content).toBe(answersOf.get(model))
        answers.push(model)
        most = Math.max(most, await server.metric('moeflux_models_loaded'))
      }
    }
    await Promise.all(Array.from({ length: 16 }, client))
    expect(answers).toHaveLength(32)
    expect(new Set(answers).size).toBe(3)
    expect(most).toBeLessThanOrEqual(2)
    expect(await server.metric('moeflux_model_unloads_total')).toBeGreaterThan(0)
    expect(await server.metric('moeflux_evaluated_tokens_total')).toBeGreaterThan(32)
    await server.idle()
  })

  test('pulls nothing for clients where its models are named', async () => {
    const hub = await (await fetch(`${server.url}/hub`)).json()
    expect([hub.can_pull, hub.models.length]).toEqual([false, 3])
    for (const path of ['/hub/pull', '/hub/forecast', '/api/pull']) {
      expect((await postJson(`${server.url}${path}`, { model: 'qwen3.6-35b' })).status, path).toBe(403)
    }
    expect((await postJson(`${server.url}/hub/load`, { model: 'nobody' })).status).toBe(404)
  })

  test('refuses a model that is not there in the shape of each API', async () => {
    const message = expect.stringContaining("no model 'nobody'")
    const openai = await postJson(`${server.url}/v1/chat/completions`, chat('nobody'))
    expect([openai.status, await openai.json()]).toEqual([
      404,
      { error: expect.objectContaining({ message, code: 'model_not_found', param: 'model' }) },
    ])
    for (const [path, body] of [
      ['/v1/completions', { prompt: 'x' }],
      ['/v1/responses', { input: 'x' }],
    ] as const) {
      const refused = await postJson(`${server.url}${path}`, { model: 'nobody', ...body })
      expect([refused.status, (await refused.json()).error.code]).toEqual([404, 'model_not_found'])
    }
    const anthropic = await postJson(`${server.url}/v1/messages`, chat('nobody'))
    expect([anthropic.status, await anthropic.json()]).toEqual([
      404,
      expect.objectContaining({ type: 'error', error: { type: 'not_found_error', message } }),
    ])
    const ollama = await postJson(`${server.url}/api/chat`, chat('nobody'))
    expect([ollama.status, await ollama.json()]).toEqual([404, { error: message }])
    expect((await fetch(`${server.url}/v1/models/nobody`)).status).toBe(404)
  })

  test('takes none for the first, and ollama’s tag for nothing', async () => {
    expect((await (await postJson(`${server.url}/v1/chat/completions`, chat(undefined))).json()).model).toBe('first')
    expect((await postJson(`${server.url}/api/chat`, chat('second:latest', { stream: false }))).status).toBe(200)
  })
})

describe('ollama’s clients', () => {
  const ask = async (path: string, body: object) => await (await postJson(`${server.url}${path}`, body)).json()
  const states = async () => {
    const { data } = await (await fetch(`${server.url}/v1/models`)).json()
    return data.map(({ state }: { state: string }) => state)
  }

  test('see how large models are and how long their context is, before they are in memory', async () => {
    const { models } = await (await fetch(`${server.url}/api/tags`)).json()
    expect(models.map(({ size }: { size: number }) => size > 1e5)).toEqual([true, true, true])
    for (const model of names) {
      const { details, model_info: info } = await ask('/api/show', { model })
      expect([model, info[`${details.family}.context_length`] > 100]).toEqual([model, true])
    }
  })

  test('have the stream of an engine end that somebody watches', async () => {
    await ask('/api/generate', { model: 'second', prompt: '' })
    const watching = await fetch(`${server.url}/engine/events?model=second`)
    await ask('/api/generate', { model: 'second', keep_alive: 0 })
    await watching.text()
    expect((await fetch(`${server.url}/engine/events?model=second`)).status).toBe(503)
  })

  test('say how long a model stays, and have it unloaded without one being loaded for it', async () => {
    const model = 'second'
    const nothing = { model, prompt: '', keep_alive: 0 }
    expect(await ask('/api/generate', { model, prompt: '', keep_alive: '1h30m' })).toMatchObject({
      done_reason: 'load',
    })
    const running = await (await fetch(`${server.url}/api/ps`)).json()
    const { expires_at } = running.models.find((each: { name: string }) => each.name === model)
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 5_400_000)).toBeLessThan(60_000)
    const loads = await server.metric('moeflux_model_loads_total')
    for (let time = 0; time < 2; time++) {
      expect(await ask('/api/generate', nothing)).toMatchObject({ response: '', done: true, done_reason: 'unload' })
      await expect.poll(async () => (await states())[1]).toBe('unloaded')
    }
    expect(await ask('/api/chat', { model, keep_alive: 0 })).toMatchObject({ done_reason: 'unload' })
    expect(await server.metric('moeflux_model_loads_total')).toBe(loads)
    expect(await ask('/api/embed', { model, input: 'a dog', keep_alive: 0 })).toMatchObject({ model })
    await expect.poll(async () => (await states())[1]).toBe('unloaded')
  })
})

describe('what cannot be', () => {
  test('is told before anything is loaded', async () => {
    const two = ['--model', place('first'), '--model', place('second')]
    const cases: [string[], RegExp][] = [
      [[...two, '--name', 'x'], /--name works only with one model/],
      [[...two, '--pin', 'third'], /--pin third: not one of first, second/],
      [[...two, '--pin', 'first', '--max-loaded', '1'], /--pin: no room/],
      [['--model', place('first'), '--model', join(home, '.', 'first')], /two models would have the name/],
    ]
    for (const [args, message] of cases) {
      expect(await moeflux(['serve', ...args])).toMatchObject({ code: 2, stderr: expect.stringMatching(message) })
    }
  })
})

describe('the library', () => {
  test('opens models of the store by name, lists and removes them', async () => {
    const before = process.env.MOEFLUX_HOME
    process.env.MOEFLUX_HOME = mkdtempSync(join(tmpdir(), 'moeflux-home-'))
    try {
      const { cpSync } = await import('node:fs')
      cpSync(demoModelPath(), join(process.env.MOEFLUX_HOME, 'models', 'org--little'), { recursive: true })
      const [stored] = await listModels()
      expect(stored).toMatchObject({ id: 'org--little', state: 'ready' })
      for (const name of ['org--little', 'demo']) {
        const model = await openModel(name, { backend: 'reference' })
        await model.close()
      }
      await expect(openModel('nobody/nothing')).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
      expect(await removeModel('org--little')).toMatchObject({ id: 'org--little' })
      expect(await listModels()).toEqual([])
    } finally {
      rmSync(process.env.MOEFLUX_HOME, { recursive: true, force: true })
      if (before === undefined) delete process.env.MOEFLUX_HOME
      else process.env.MOEFLUX_HOME = before
    }
  })
})
