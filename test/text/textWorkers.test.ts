// Text work beside the thread that serves: what waits for what, what is given up, and that the results are the same.
import { afterAll, describe, expect, test } from 'vitest'
import { ChatTemplate } from '#moeflux/text/template/chatTemplate.js'
import { startNodeTextWorker } from '#moeflux/text/workers/nodeStartTextWorker.js'
import { type TextWorker, TextWorkers } from '#moeflux/text/workers/textWorkers.js'
import { scriptedModel } from '../support/models/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const workers = new TextWorkers(startNodeTextWorker, tokenizer)
afterAll(() => workers.close())

const anyLength = Number.POSITIVE_INFINITY
const long = 'once upon a time '.repeat(200_000) // 3.4 MB
const short = 'A little dog. '.repeat(500)

describe('encoding beside', () => {
  test('gives the ids that encoding here gives', async () => {
    for (const text of ['', 'Once', short, `${short}<|im_end|>${short}`, '\u0301\u0323'.repeat(3000)]) {
      const { ids, sections } = await workers.encode(text, {}, anyLength)
      const here = tokenizer.encodeSections(text)
      expect([...ids]).toEqual([...here.ids])
      expect(sections).toEqual(here.sections)
      expect(await workers.count(text, {})).toBe(here.ids.length)
    }
  })

  test('leaves this thread free, and short texts before long ones', async () => {
    const done: string[] = []
    let turns = 0
    let isOver = false
    const turn = () => {
      turns++
      if (!isOver) setImmediate(turn)
    }
    turn()
    const first = workers.count(long, {}).then(() => done.push('long'))
    const second = workers.count(short, {}).then(() => done.push('short'))
    await Promise.all([first, second])
    expect(done).toEqual(['short', 'long'])
    expect(turns).toBeGreaterThan(20)
    turns = 0
    await workers.encode(long, {}, anyLength)
    isOver = true
    expect(turns).toBeGreaterThan(20)
  })

  test('can be given up, and the next text is encoded as if nothing had been', async () => {
    const leave = new AbortController()
    const given = workers.count(long, {}, leave.signal)
    setTimeout(() => leave.abort(new Error('left')), 20)
    await expect(given).rejects.toThrow('left')
    expect(await workers.count(long, {})).toBe(tokenizer.encode(long).length)
  })

  test('says what became of a worker, and of the model', async () => {
    let end = (_: string) => {}
    const worker: TextWorker = {
      post: message => void ('pairs' in message || end('needed too much')),
      listen: (reply, ended) => {
        end = ended
        queueMicrotask(() => reply('ready'))
      },
      setBusy() {},
      terminate() {},
    }
    const dying = new TextWorkers(() => worker, tokenizer)
    await expect(dying.count(short, {})).rejects.toMatchObject({
      code: 'TOKENIZER',
      message: 'encoding: needed too much',
    })
    dying.close()
    await expect(dying.count(short, {})).rejects.toMatchObject({ code: 'CLOSED' })
    const none = new TextWorkers(() => Promise.reject(new Error('no threads here')), tokenizer)
    await expect(none.count(short, {})).rejects.toThrow('encoding: no threads here')
  })

  test('refuses words that nobody can encode', async () => {
    await expect(workers.count('x'.repeat(2 ** 23), {})).rejects.toMatchObject({ code: 'BAD_OPTION' })
    expect(await workers.count('x', {})).toBe(1)
  })
})

describe('a prompt that cannot fit', () => {
  test('is refused from its length: a chat before its text comes back, a raw one before it is encoded', async () => {
    const { model } = await scriptedModel({ script: () => 0, contextLength: 100 })
    const session = model.createSession()
    const wanted = { isAtLeast: true, answerTokens: 1, promptTokens: expect.any(Number) }
    const refusal = { code: 'CONTEXT_LIMIT', limit: 100, wanted, message: expect.stringContaining('at least') }
    const messages = [{ role: 'user', content: long }]
    await expect(session.chat({ messages }).answer()).rejects.toMatchObject(refusal)
    await expect(session.complete({ prompt: long }).answer()).rejects.toMatchObject(refusal)
    const template = new ChatTemplate('{{ messages[0].content }}', workers)
    const rendered = await template.render({ messages: [{ role: 'user', content: long }] }, { maxTokens: 99 })
    expect(rendered).toEqual({ atLeast: expect.any(Number) })
    const { length } = tokenizer.encode(short)
    const exact = { code: 'CONTEXT_LIMIT', wanted: { promptTokens: length, answerTokens: 1, isAtLeast: false } }
    await expect(session.complete({ prompt: short }).answer()).rejects.toMatchObject(exact)
    const ids = Array(100).fill(440)
    await expect(session.complete({ prompt: ids }).answer()).rejects.toMatchObject({ wanted: { promptTokens: 100 } })
    expect(await session.countTokens({ messages })).toBeGreaterThan(800_000)
    expect(await model.countTokens(short)).toBe(length)
    await model.close()
  })

  test('frees its place when it is left while it is encoded', async () => {
    const { model } = await scriptedModel({ script: () => 8185 })
    const session = model.createSession({ maxSequences: 1 })
    const leave = new AbortController()
    const left = session.chat({ messages: [{ role: 'user', content: long }], signal: leave.signal }).answer()
    const counted = session.countTokens({ messages: [{ role: 'user', content: long }], signal: leave.signal })
    leave.abort(new Error('left'))
    await expect(left).rejects.toThrow('left')
    await expect(counted).rejects.toThrow('left')
    const { reason } = await session.chat({ messages: [{ role: 'user', content: 'Hi' }] }).answer()
    expect(reason).toBe('stop')
    await model.close()
  })

  test('looks at no more breakpoints than are of use', async () => {
    const { model } = await scriptedModel({ script: () => 8185, contextLength: 100_000 })
    const content = Array.from({ length: 2000 }, () => ({ type: 'text', text: 'A little dog. ', cache_control: {} }))
    const { reason } = await model
      .createSession()
      .chat({ messages: [{ role: 'user', content }] })
      .answer()
    expect(reason).toBe('stop')
    await model.close()
  })
})
