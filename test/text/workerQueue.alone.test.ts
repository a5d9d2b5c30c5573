// The line of jobs in front of a worker that can be stopped, with workers that do as they are told.
import { describe, expect, test } from 'vitest'
import { type LineOptions, type LineWorker, WorkerFailure, WorkerLine } from '#moeflux/text/workers/workerQueue.js'

const turn = () => new Promise(resolve => setTimeout(resolve, 0))
const LONG = { milliseconds: 60_000 }

/** A worker that answers when the test says so. */
class TestWorker implements LineWorker<string, string> {
  readonly got: string[] = []
  isBusy = false
  isEnded = false
  private reply: (reply: 'ready' | string) => void = () => {}
  private ended: (reason: string) => void = () => {}

  post(request: string): void {
    if (request === 'unsendable') throw new TypeError('cannot be cloned')
    this.got.push(request)
  }

  listen(reply: (reply: 'ready' | string) => void, ended: (reason: string) => void): void {
    this.reply = reply
    this.ended = ended
  }

  setBusy(busy: boolean): void {
    this.isBusy = busy
  }

  terminate(): void {
    this.isEnded = true
  }

  say(reply: 'ready' | string): void {
    this.reply(reply)
  }

  die(reason: string): void {
    this.isEnded = true
    this.ended(reason)
  }
}

function testLine(options?: LineOptions) {
  const workers: TestWorker[] = []
  const line = new WorkerLine<string, string>(() => {
    const worker = new TestWorker()
    workers.push(worker)
    queueMicrotask(() => queueMicrotask(() => worker.say('ready')))
    return worker
  }, options)
  return { line, workers }
}

describe('a line of jobs', () => {
  test('is done one by one, lighter ones first, and keeps no process alive after', async () => {
    const { line, workers } = testLine()
    const results = Promise.all([
      line.run('first', { ...LONG, weight: 9 }),
      line.run('heavy', { ...LONG, weight: 7 }),
      line.run('light', { ...LONG, weight: 1 }),
      line.run('light too', { ...LONG, weight: 1 }),
    ])
    await turn()
    const [worker] = workers
    for (let done = 1; done <= 4; done++) {
      expect(worker.got.length).toBe(done)
      expect(worker.isBusy).toBe(true)
      worker.say(`did ${worker.got.at(-1)}`)
      await turn()
    }
    expect(worker.got).toEqual(['light', 'light too', 'heavy', 'first'])
    expect(await results).toEqual(['did first', 'did heavy', 'did light', 'did light too'])
    expect(worker.isBusy).toBe(false)
    expect(workers.length).toBe(1)
  })

  test('lets no job be overtaken for ever', async () => {
    const { line, workers } = testLine()
    const order: string[] = []
    const run = (job: string, weight: number) => void line.run(job, { ...LONG, weight }).then(() => order.push(job))
    run('first', 1)
    await turn()
    run('heavy', 900)
    run('medium', 50)
    for (let i = 0; i < 40 && order.length < 30; i++) {
      run('light', 10)
      workers[0].say('done')
      await turn()
    }
    expect(order[0]).toBe('first')
    expect(order.indexOf('medium')).toBeGreaterThan(10)
    expect(order.indexOf('medium')).toBeLessThanOrEqual(1 + 16)
    expect(order.indexOf('heavy')).toBe(order.indexOf('medium') + 1)
    expect(workers.length).toBe(1)
  })

  test('does short jobs to their end that nobody wants any more, where it is told to', async () => {
    const { line, workers } = testLine({ finishesUnwanted: true })
    const leave = new AbortController()
    const first = line.run('first', { ...LONG, signal: leave.signal })
    const second = line.run('second', LONG)
    await turn()
    leave.abort(new Error('left'))
    await expect(first).rejects.toThrow('left')
    expect(workers[0].got).toEqual(['first'])
    workers[0].say('did first')
    expect(workers[0].got).toEqual(['first', 'second'])
    workers[0].say('did second')
    expect(await second).toBe('did second')
    expect(workers.length).toBe(1)
    expect(workers[0].isEnded).toBe(false)
  })

  test('ends a worker that has nothing to do for long, and no other', async () => {
    const { line, workers } = testLine({ idleMilliseconds: 30 })
    const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
    const first = line.run('first', LONG)
    await sleep(50)
    expect(workers[0].isEnded).toBe(false) // it works
    workers[0].say('did first')
    await first
    const second = line.run('second', LONG)
    await sleep(50)
    expect(workers[0].isEnded).toBe(false) // it works again
    workers[0].say('did second')
    await second
    await expect.poll(() => workers[0].isEnded).toBe(true)
    const third = line.run('third', LONG)
    await turn()
    workers[1].say('did third')
    expect(await third).toBe('did third')
    line.close()
  })

  test('goes on with a fresh worker after one that took too long, whose wait in the line did not count', async () => {
    const { line, workers } = testLine()
    const slow = line.run('slow', { milliseconds: 60 })
    const next = line.run('next', { milliseconds: 60 })
    await expect(slow).rejects.toMatchObject({ reason: 'late' })
    expect(workers[0].isEnded).toBe(true)
    await turn()
    expect(workers[1].got).toEqual(['next'])
    workers[1].say('done')
    expect(await next).toBe('done')
  })

  test('blames the job that runs when a worker dies; those behind it are done by the next one', async () => {
    const { line, workers } = testLine({ ahead: 8 })
    const jobs = ['bomb', 'b', 'c'].map(job => line.run(job, LONG))
    const [bomb, b, c] = jobs
    await turn()
    expect(workers[0].got).toEqual(['bomb', 'b', 'c'])
    workers[0].die('out of memory')
    await expect(bomb).rejects.toThrow('out of memory')
    await turn()
    expect(workers[1].got).toEqual(['b', 'c'])
    workers[1].say('did b')
    workers[1].say('did c')
    expect(await Promise.all([b, c])).toEqual(['did b', 'did c'])
  })

  test('lets go of a job that nobody waits for: where it waits, and where it runs', async () => {
    const { line, workers } = testLine()
    const [running, waiting] = [new AbortController(), new AbortController()]
    const first = line.run('first', { ...LONG, signal: running.signal })
    const second = line.run('second', { ...LONG, signal: waiting.signal })
    const third = line.run('third', LONG)
    await turn()
    waiting.abort(new Error('left'))
    await expect(second).rejects.toThrow('left')
    expect(workers[0].isEnded).toBe(false)
    running.abort(new Error('left too'))
    await expect(first).rejects.toThrow('left too')
    expect(workers[0].isEnded).toBe(true)
    await turn()
    expect(workers[1].got).toEqual(['third'])
    workers[1].say('done')
    expect(await third).toBe('done')
    expect(() => running.signal.throwIfAborted()).toThrow()
    await expect(line.run('never', { ...LONG, signal: running.signal })).rejects.toThrow('left too')
  })

  test('tells the first of the line that no worker starts, and tries again for the next', async () => {
    let starts = 0
    const line = new WorkerLine<string, string>(() => {
      starts++
      throw new Error(`no thread ${starts}`)
    })
    const jobs = [line.run('a', LONG), line.run('b', LONG)]
    expect((await Promise.allSettled(jobs)).map(it => String((it as PromiseRejectedResult).reason.message))).toEqual([
      'no thread 1',
      'no thread 2',
    ])
  })

  test('refuses what cannot be sent, and goes on', async () => {
    const { line, workers } = testLine()
    await expect(line.run('unsendable', LONG)).rejects.toThrow('cannot be cloned')
    const next = line.run('next', LONG)
    await turn()
    workers[0].say('done')
    expect(await next).toBe('done')
  })

  test('ends with all its jobs, also while the worker starts', async () => {
    const { line, workers } = testLine()
    const jobs = [line.run('a', LONG), line.run('b', LONG)]
    await turn()
    line.close()
    for (const job of jobs) await expect(job).rejects.toMatchObject({ reason: 'closed' })
    expect(workers[0].isEnded).toBe(true)
    await expect(line.run('c', LONG)).rejects.toBeInstanceOf(WorkerFailure)

    const early = testLine()
    const job = early.line.run('a', LONG)
    early.line.close()
    await expect(job).rejects.toMatchObject({ reason: 'closed' })
    await turn()
    expect(early.workers.every(worker => worker.isEnded)).toBe(true)
  })
})
