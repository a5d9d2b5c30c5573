// Text work beside the thread that serves: what waits for what, what is given up, and that the results are the same.
import { afterAll, describe, expect, it } from 'vitest'
import { ChatTemplate } from '#moeflux/text/chatTemplate.js'
import type { EncoderData } from '#moeflux/text/encoder.js'
import { startNodeTextWorker } from '#moeflux/text/nodeTextWorker.js'
import { TextLane, type TextWorker } from '#moeflux/text/textLane.js'
import type { TextJob, TextReply } from '#moeflux/text/textService.js'
import { TextWorkers } from '#moeflux/text/textWorkers.js'
import { scriptedModel } from '../support/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const workers = new TextWorkers(startNodeTextWorker, tokenizer)
afterAll(() => workers.close())

const anyLength = Number.POSITIVE_INFINITY
const long = 'once upon a time '.repeat(200_000) // 3.4 MB
const short = 'A little dog. '.repeat(500)

/** A worker that answers when the test says so. */
class ScriptedWorker implements TextWorker {
  readonly jobs: TextJob[] = []
  isEnded = false
  private reply: (reply: TextReply | 'ready') => void = () => {}
  private ended: (reason: string) => void = () => {}

  post(message: EncoderData | TextJob) {
    if ('pairs' in message) queueMicrotask(() => this.reply('ready'))
    else this.jobs.push(message)
  }
  listen(reply: (reply: TextReply | 'ready') => void, ended: (reason: string) => void) {
    this.reply = reply
    this.ended = ended
  }
  setBusy() {}
  terminate() {
    this.isEnded = true
  }
  answer(result: number) {
    this.reply({ result })
  }
  die(reason: string) {
    this.ended(reason)
  }
}

function scriptedLane(endsUnwanted = true) {
  const started: ScriptedWorker[] = []
  const start = () => {
    started.push(new ScriptedWorker())
    return started.at(-1)!
  }
  const lane = new TextLane(start, tokenizer.encoderData, { endsUnwanted })
  const run = (size: number, more: { signal?: AbortSignal; milliseconds?: number } = {}) =>
    lane.run({ job: { count: { text: String(size), options: {} } }, size, milliseconds: 60_000, ...more })
  const turn = () => new Promise(resolve => setImmediate(resolve))
  const running = () => started.at(-1)!.jobs.at(-1) as { count: { text: string } }
  return { lane, run, started, turn, running }
}

describe('a lane', () => {
  it('takes the shortest job first, but lets none be overtaken for ever', async () => {
    const { run, started, turn, running } = scriptedLane()
    const order: number[] = []
    for (const size of [50, 900, 20, 30]) void run(size).then(() => order.push(size))
    for (let i = 0; i < 40 && order.length < 20; i++) {
      await turn()
      const { text } = running().count
      if (order.length < 18) void run(10).then(() => order.push(10))
      started[0].answer(Number(text))
      await turn()
    }
    expect(order.slice(0, 3)).toEqual([50, 10, 10])
    expect(order.indexOf(900)).toBeLessThan(19)
    expect(started).toHaveLength(1)
  })

  it('stops a running job that nobody wants any more, and forgets one that waits', async () => {
    const { run, started, turn, running } = scriptedLane()
    const leave = [new AbortController(), new AbortController()]
    const jobs = [run(1, { signal: leave[0].signal }), run(2, { signal: leave[1].signal }), run(3)]
    await turn()
    leave[1].abort(new Error('left early'))
    await expect(jobs[1]).rejects.toThrow('left early')
    leave[0].abort(new Error('left'))
    await expect(jobs[0]).rejects.toThrow('left')
    expect(started[0].isEnded).toBe(true)
    await turn()
    expect(running().count.text).toBe('3')
    started[1].answer(3)
    expect(await jobs[2]).toEqual({ result: 3 })
    await expect(run(4, { signal: leave[0].signal })).rejects.toThrow('left')
  })

  it('lets short jobs finish that nobody wants any more', async () => {
    const { run, started, turn, running } = scriptedLane(false)
    const leave = new AbortController()
    const first = run(1, { signal: leave.signal })
    const second = run(2)
    await turn()
    leave.abort(new Error('left'))
    await expect(first).rejects.toThrow('left')
    started[0].answer(1)
    await turn()
    expect(running().count.text).toBe('2')
    started[0].answer(2)
    expect(await second).toEqual({ result: 2 })
    expect(started).toHaveLength(1)
  })

  it('fails a job whose worker dies or takes too long, and gives the next a fresh one', async () => {
    const { lane, run, started, turn } = scriptedLane()
    const slow = run(1, { milliseconds: 5 })
    expect(await slow).toEqual({ failed: 'ran for more than 5 ms' })
    const dying = run(2)
    await turn()
    started[1].die('out of memory')
    expect(await dying).toEqual({ failed: 'out of memory' })
    const closing = run(3)
    await turn()
    lane.close()
    expect(await closing).toEqual({ failed: 'the model is closed' })
    await expect(run(4)).rejects.toThrow('closed')
    expect(started.every(worker => worker.isEnded)).toBe(true)
  })
})

describe('encoding beside', () => {
  it('gives the ids that encoding here gives', async () => {
    for (const text of ['', 'Once', short, `${short}<|im_end|>${short}`, '\u0301\u0323'.repeat(3000)]) {
      const { ids, sections } = await workers.encode(text, {}, anyLength)
      const here = tokenizer.encodeSections(text)
      expect([...ids]).toEqual([...here.ids])
      expect(sections).toEqual(here.sections)
      expect(await workers.count(text, {})).toBe(here.ids.length)
    }
  })

  it('leaves this thread free, and short texts before long ones', async () => {
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
    isOver = true
    expect(done).toEqual(['short', 'long'])
    expect(turns).toBeGreaterThan(20)
  })

  it('can be given up, and the next text is encoded as if nothing had been', async () => {
    const leave = new AbortController()
    const given = workers.count(long, {}, leave.signal)
    setTimeout(() => leave.abort(new Error('left')), 20)
    await expect(given).rejects.toThrow('left')
    expect(await workers.count(long, {})).toBe(tokenizer.encode(long).length)
  })

  it('refuses words that nobody can encode', async () => {
    await expect(workers.count('x'.repeat(2 ** 23), {})).rejects.toMatchObject({ code: 'BAD_OPTION' })
    expect(await workers.count('x', {})).toBe(1)
  })
})

describe('a prompt that cannot fit', () => {
  it('is refused from its length: a chat before its text comes back, a raw one before it is encoded', async () => {
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

  it('frees its place when it is left while it is encoded', async () => {
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

  it('looks at no more breakpoints than are of use', async () => {
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
