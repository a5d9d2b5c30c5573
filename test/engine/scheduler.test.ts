// The scheduler over a backend that only writes down what it is asked to do.
import { describe, expect, test } from 'vitest'
import type { Backend, SequenceState, StepOptions, StepOutput, StepRun } from '#moeflux/backends/backend.js'
import { Scheduler } from '#moeflux/engine/scheduler.js'

const CHUNK = 8
const POISON = 666 // a token that makes its step fail

class FakeSequence {
  length = 0
  constructor(readonly name: string) {}
}

class FakeBackend {
  readonly chunkTokens = CHUNK
  shortChunkTokens?: number
  readonly steps: string[] = [] // 'a2 b1': two tokens of a with one of b
  busy = false

  async step(runs: readonly StepRun[], options: StepOptions = {}): Promise<StepOutput[]> {
    if (this.busy) throw new Error('two steps at once')
    this.busy = true
    try {
      for (let i = 0; i < 3; i++) {
        await new Promise(resolve => setImmediate(resolve))
        options.signal?.throwIfAborted()
      }
      if (runs.some(run => run.tokens.includes(POISON))) throw new Error('poison')
      this.steps.push(runs.map(run => `${nameOf(run.sequence)}${run.tokens.length}`).join(' '))
      for (const run of runs) (run.sequence as unknown as FakeSequence).length += run.tokens.length
      return runs.map(({ tokens }) => ({
        logits: null,
        argmax: tokens.at(-1) as number,
        kept: tokens.length,
        routing: null,
      }))
    } finally {
      this.busy = false
    }
  }
}

const nameOf = (sequence: SequenceState) => (sequence as unknown as FakeSequence).name

function setUp() {
  const backend = new FakeBackend()
  const scheduler = new Scheduler(backend as unknown as Backend)
  const evaluate = (sequence: FakeSequence, tokens: readonly number[], options: { signal?: AbortSignal } = {}) =>
    scheduler.evaluate({
      sequence: sequence as unknown as SequenceState,
      tokens,
      phase: tokens.length > 1 ? 'prompt' : 'decode',
      output: 'last',
      onCommit: () => {},
      signal: options.signal ?? new AbortController().signal,
    })
  return { backend, scheduler, evaluate }
}

const tokens = (count: number) => Array.from({ length: count }, (_, i) => i)

describe('scheduler', () => {
  test('cuts prompts at absolute multiples of the chunk, however they came', async () => {
    const { backend, evaluate } = setUp()
    const a = new FakeSequence('a')
    await evaluate(a, tokens(5))
    await evaluate(a, tokens(20))
    expect(backend.steps).toEqual(['a5', 'a3', 'a8', 'a8', 'a1'])
  })

  test('decodes that are ready together are one step', async () => {
    const { backend, evaluate } = setUp()
    const [a, b, c] = ['a', 'b', 'c'].map(name => new FakeSequence(name))
    const generate = async (sequence: FakeSequence, count: number) => {
      for (let i = 0; i < count; i++) await evaluate(sequence, [i])
    }
    await Promise.all([generate(a, 3), generate(b, 3), generate(c, 2)])
    expect(backend.steps).toEqual(['a1 b1 c1', 'a1 b1 c1', 'a1 b1'])
  })

  test('a merged step never has more runs than the chunk has tokens', async () => {
    const { backend, evaluate } = setUp()
    await Promise.all(Array.from({ length: 10 }, (_, i) => evaluate(new FakeSequence(`s${i}x`), [0])))
    expect(backend.steps.map(step => step.split(' ').length)).toEqual([8, 2])
  })

  test('prompts take turns, with a step of decodes between two chunks', async () => {
    const { backend, evaluate } = setUp()
    const [a, b, c] = ['a', 'b', 'c'].map(name => new FakeSequence(name))
    const decode = async () => {
      for (let i = 0; i < 4; i++) await evaluate(c, [i])
    }
    await Promise.all([evaluate(a, tokens(16)), evaluate(b, tokens(16)), decode()])
    expect(backend.steps).toEqual(['c1', 'a8', 'c1', 'b8', 'c1', 'a8', 'c1', 'b8'])
  })

  test('chunks are short while tokens of others wait for them, and long again', async () => {
    const { backend, evaluate } = setUp()
    backend.shortChunkTokens = 2
    const [a, b] = ['a', 'b'].map(name => new FakeSequence(name))
    const decode = async () => {
      for (let i = 0; i < 3; i++) await evaluate(b, [i])
    }
    await Promise.all([evaluate(a, tokens(23)), decode()])
    expect(backend.steps).toEqual(['b1', 'a2', 'b1', 'a2', 'b1', 'a2', 'a2', 'a8', 'a7'])
  })

  test('a run that fails does not fail the others of its step', async () => {
    const { backend, evaluate } = setUp()
    const sequences = ['a', 'b', 'c'].map(name => new FakeSequence(name))
    const results = await Promise.allSettled([
      evaluate(sequences[0], [1]),
      evaluate(sequences[1], [POISON]),
      evaluate(sequences[2], [2]),
    ])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(sequences.map(({ length }) => length)).toEqual([1, 0, 1])
    expect(backend.steps.sort()).toEqual(['a1', 'c1'])
  })

  test('a run that is aborted does not abort the others of its step', async () => {
    const { backend, evaluate } = setUp()
    const [a, b, c] = ['a', 'b', 'c'].map(name => new FakeSequence(name))
    const controller = new AbortController()
    const reason = new Error('enough')
    const all = Promise.allSettled([
      evaluate(a, [1]),
      evaluate(b, [2], { signal: controller.signal }),
      evaluate(c, [3]),
    ])
    await new Promise(resolve => setImmediate(() => setImmediate(resolve)))
    expect(backend.busy).toBe(true)
    controller.abort(reason)
    const results = await all
    expect(results[1]).toEqual({ status: 'rejected', reason })
    expect(backend.steps).toEqual(['a1 c1'])
    expect([a.length, b.length, c.length]).toEqual([1, 0, 1])
  })

  test('an abort between chunks stops a prompt where it is; one before it begins costs nothing', async () => {
    const { backend, evaluate } = setUp()
    const a = new FakeSequence('a')
    const controller = new AbortController()
    const running = evaluate(a, tokens(100), { signal: controller.signal })
    while (a.length < 16) await new Promise(resolve => setImmediate(resolve))
    controller.abort()
    await expect(running).rejects.toThrow('abort')
    expect(a.length % CHUNK).toBe(0)
    const steps = backend.steps.length
    await expect(evaluate(a, [1], { signal: controller.signal })).rejects.toThrow('abort')
    expect(backend.steps.length).toBe(steps)
  })

  test('exclusive work never overlaps a step', async () => {
    const { backend, scheduler, evaluate } = setUp()
    const a = new FakeSequence('a')
    const seen: boolean[] = []
    const look = () =>
      scheduler.exclusive(async () => {
        seen.push(backend.busy)
        await new Promise(resolve => setImmediate(resolve))
        seen.push(backend.busy)
      })
    await Promise.all([evaluate(a, tokens(30)), look(), look(), look()])
    expect(seen).toEqual(new Array(6).fill(false))
    await expect(scheduler.exclusive(() => Promise.reject(new Error('own')))).rejects.toThrow('own')
  })

  test('closing refuses what waits and waits for what runs', async () => {
    const { backend, scheduler, evaluate } = setUp()
    const [a, b] = ['a', 'b'].map(name => new FakeSequence(name))
    const running = Promise.allSettled([
      evaluate(a, tokens(30)),
      evaluate(b, tokens(3)),
      scheduler.exclusive(async () => 1),
    ])
    while (!backend.busy) await new Promise(resolve => setImmediate(resolve))
    await scheduler.close()
    expect(backend.busy).toBe(false)
    for (const result of (await running).slice(0, 2)) expect(result).toMatchObject({ reason: { code: 'CLOSED' } })
    expect(backend.steps).toEqual(['a8'])
    await expect(evaluate(a, [1])).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(scheduler.exclusive(async () => 1)).rejects.toMatchObject({ code: 'CLOSED' })
  })
})
