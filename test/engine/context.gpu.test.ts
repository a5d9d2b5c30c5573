// What calls on models and contexts refuse, and what is left when they are closed.
import { readdirSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { beforeAll, describe, expect, test } from 'vitest'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import { backends } from '../support/backends.js'
import { demoModel, packTiny } from '../support/models/models.js'
import { expectSameBits } from '../support/ops/bands.js'

let tiny: string
beforeAll(async () => {
  tiny = await packTiny()
})

async function withModel(options: object, use: (model: Model) => Promise<void>) {
  const model = await openModel(tiny, options)
  try {
    await use(model)
  } finally {
    await model.close()
  }
}

describe('openModel', () => {
  test.each<[object, string]>([
    [{ backend: 'cuda' }, 'backend'],
    [{ precision: 'medium' }, 'precision'],
    [{ threads: 0 }, 'threads'],
    [{ expertMemory: 'lots' }, 'expertMemory'],
    [{ expertMemory: '1KB' }, 'expertMemory'],
    [{ expertsPerToken: 3 }, 'expertsPerToken'],
    [{ expertsPerToken: 0 }, 'expertsPerToken'],
    [{ expertBits: 3 }, 'expertBits'],
    [{ expertBits: 2 }, 'expertBits'],
    [{ contextLength: 1025 }, 'contextLength'],
    [{ contextLength: 1.5 }, 'contextLength'],
  ])('refuses %j', async (options, option) => {
    await expect(openModel(tiny, { backend: 'reference', ...options })).rejects.toMatchObject({
      code: 'BAD_OPTION',
      option,
    })
  })

  test('an abort while opening', async () => {
    const signal = AbortSignal.abort(new Error('not now'))
    await expect(openModel(tiny, { backend: 'reference', signal })).rejects.toThrow('not now')
  })

  test('a folder that is not there', async () => {
    await expect(openModel(`${tiny}/nothing`)).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
  })

  test('fewer experts per token, and little memory for them, still work', async () => {
    await withModel({ backend: 'reference', expertsPerToken: 1, expertMemory: 2 * 3 * 64 * 128 * 2 }, async model => {
      expect(model.expertsPerToken).toBe(1)
      const context = model.createContext()
      const { routing } = await context.evaluate([1, 2, 3, 4, 5, 6, 7, 8], { routing: true })
      expect(routing.map(({ tokens, experts }) => [tokens, experts.length])).toEqual([[8, 4 * 8 * 1]])
      const { expertSlots, expertSlotsUsed } = model.stats()
      expect(expertSlotsUsed).toBeLessThanOrEqual(expertSlots)
    })
  })
})

// What a context refuses and promises is the engine's, whatever computes: the slow backends are not opened ten times.
describe.each(backends.filter(({ isSlow }) => !isSlow))('contexts on $name', backend => {
  test('what the model says of itself', () =>
    withModel(backend.options, async model => {
      expect(model).toMatchObject({ vocabSize: 512, contextLength: 1024, eosTokenIds: [511] })
      expect(model.backend).toBe(backend.options.backend)
      const record = await model.readExpert(2, 7)
      expect(record.length).toBe(3 * 64 * 128 * 2)
      await expect(model.readExpert(4, 0)).rejects.toMatchObject({ code: 'BAD_OPTION' })
      await expect(model.readExpert(0, 8)).rejects.toMatchObject({ code: 'BAD_OPTION' })
    }))

  test('bad calls are refused before anything changes', () =>
    withModel({ ...backend.options, contextLength: 20 }, async model => {
      const context = model.createContext()
      const want = await context.evalPrompt([5, 6, 7])
      for (const token of [-1, 512, 1.5, Number.NaN, '3', undefined]) {
        await expect(context.evalPrompt([1, token as number])).rejects.toMatchObject({ code: 'BAD_TOKEN' })
        await expect(context.evalToken(token as number)).rejects.toMatchObject({ code: 'BAD_TOKEN' })
      }
      await expect(context.evalPrompt(new Array(18).fill(1))).rejects.toMatchObject({
        code: 'CONTEXT_LIMIT',
        limit: 20,
      })
      for (const start of [0, 2, 4]) {
        await expect(context.evalPrompt([1], { start })).rejects.toMatchObject({ code: 'BAD_POSITION' })
      }
      for (const position of [-1, 4, 1.5, Number.NaN]) {
        await expect(context.rewind(position)).rejects.toMatchObject({ code: 'BAD_POSITION' })
      }
      await expect(context.restore(3)).rejects.toMatchObject({ code: 'NO_CHECKPOINT', available: [] })
      await expect(context.probe({ tokens: [] })).rejects.toMatchObject({ code: 'BAD_OPTION' })
      await expect(context.probe({ layer: 4, hidden: new Float32Array(128) })).rejects.toMatchObject({
        code: 'BAD_OPTION',
      })
      await expect(context.probe({ layer: 0, hidden: new Float32Array(5) })).rejects.toMatchObject({
        code: 'BAD_OPTION',
      })
      expect(() => {
        context.maxCheckpoints = -1
      }).toThrow('maxCheckpoints')
      expect(() => model.createContext({ maxCheckpoints: 1.5 })).toThrow('maxCheckpoints')
      expect(context.tokens).toEqual([5, 6, 7])
      expectSameBits((await context.rewind(3)) as Float32Array, want as Float32Array)
    }))

  test('an empty prompt is no work', () =>
    withModel(backend.options, async model => {
      const context = model.createContext()
      const steps = model.stats().steps
      expect(await context.evalPrompt([])).toBeNull()
      expect(await context.evalPrompt(new Int32Array(0), { start: 0 })).toBeNull()
      expect(model.stats().steps).toBe(steps)
      expect(await context.evalPrompt(Int32Array.of(1, 2))).toHaveLength(512)
    }))

  test("logits are the caller's own", () =>
    withModel(backend.options, async model => {
      const context = model.createContext()
      const first = (await context.evalPrompt([1, 2, 3])) as Float32Array
      const copy = first.slice()
      await context.checkpoint()
      first.fill(Number.NaN)
      const kept = (await context.rewind(3)) as Float32Array
      expectSameBits(kept, copy)
      kept.fill(0)
      expectSameBits((await context.restore(3)) as Float32Array, copy)
    }))

  test('logits of every token, none, and the best id alone', () =>
    withModel(backend.options, async model => {
      const tokens = Array.from({ length: 70 }, (_, i) => i)
      const context = model.createContext()
      const all = await context.evaluate(tokens, { logits: 'all' })
      expect(all.logits).toHaveLength(70 * 512)
      await context.clear()
      const starts: number[] = []
      const streamed = await context.evaluate(tokens, {
        logits: 'all',
        onLogits: (start, logits) => {
          starts.push(start)
          const want = (all.logits as Float32Array).subarray(start * 512, start * 512 + logits.length)
          expectSameBits(logits, want)
        },
      })
      expect(streamed.logits).toBeNull()
      expect(starts[0]).toBe(0)
      await context.rewind(69)
      const last = await context.evalToken(69)
      const best = last.indexOf(last.reduce((a, b) => Math.max(a, b)))
      await context.rewind(69)
      expect(await context.evalTokenGreedy(69)).toBe(best)
      await context.rewind(69)
      const into = new Float32Array(512)
      expect(await context.evalToken(69, { into })).toBe(into)
      expectSameBits(into, last)
      await expect(context.evalToken(1, { into: new Float32Array(511) })).rejects.toMatchObject({ code: 'BAD_OPTION' })
      await context.clear()
      expect(await context.evaluate(tokens, { logits: 'none' })).toMatchObject({ logits: null, argmax: null })
      expect(context.length).toBe(70)
    }))

  test('a closed context refuses, what waits on it is refused, and others go on', () =>
    withModel(backend.options, async model => {
      const [a, b] = [model.createContext(), model.createContext()]
      const running = a.evalPrompt(Array.from({ length: 500 }, (_, i) => i % 512))
      const waiting = a.evalToken(1)
      const outcome = Promise.allSettled([running, waiting])
      await new Promise(resolve => setTimeout(resolve, 5))
      await a.close()
      for (const result of await outcome) expect(result).toMatchObject({ reason: { code: 'CLOSED' } })
      await expect(a.evalToken(1)).rejects.toMatchObject({ code: 'CLOSED' })
      await a.close()
      expect(await b.evalPrompt([1, 2])).toHaveLength(512)
    }))

  test('closing the model closes everything, at once and twice', async () => {
    const model = await openModel(tiny, backend.options)
    const context = model.createContext()
    await context.checkpoint()
    const kept = await context.keep()
    const running = Promise.allSettled([context.evalPrompt(Array.from({ length: 500 }, (_, i) => i % 512))])
    await new Promise(resolve => setTimeout(resolve, 5))
    await Promise.all([model.close(), model.close()])
    expect((await running)[0]).toMatchObject({ reason: { code: 'CLOSED' } })
    kept.release()
    await expect(context.evalToken(1)).rejects.toMatchObject({ code: 'CLOSED' })
    await expect(model.readExpert(0, 0)).rejects.toMatchObject({ code: 'CLOSED' })
    expect(() => model.createContext()).toThrow('closed')
  })

  test('two models in one process do not disturb each other', async () => {
    const [a, b] = await Promise.all([openModel(tiny, backend.options), openModel(demoModel, backend.options)])
    const alone = await a.createContext().evalPrompt([1, 2, 3, 4])
    const contexts = [a.createContext(), b.createContext(), a.createContext()]
    const [first, , third] = await Promise.all(contexts.map(context => context.evalPrompt([1, 2, 3, 4])))
    expectSameBits(first as Float32Array, alone as Float32Array)
    expectSameBits(third as Float32Array, alone as Float32Array)
    await b.close()
    expect(await contexts[0].evalToken(5)).toHaveLength(512)
    await a.close()
  })

  test('200 evaluations and closes leak neither memory nor files', { timeout: 120_000 }, async () => {
    const round = async (contexts: number) => {
      const model = await openModel(tiny, backend.options)
      for (let i = 0; i < contexts; i++) {
        const context = model.createContext()
        await context.evalPrompt([1, 2, 3, i])
        await context.checkpoint()
        await context.evalToken(5)
        await context.close()
      }
      await model.close()
    }
    await round(20)
    const [files, bytes] = [openFiles(), await usedBytes()]
    for (let i = 0; i < 3; i++) await round(67)
    expect(openFiles()).toBeLessThanOrEqual(files)
    expect((await usedBytes()) - bytes).toBeLessThan(12e6) // a model's weights are 5 MB a time, a state 0.1 MB
  })
})

function openFiles(): number {
  return process.platform === 'win32' ? 0 : readdirSync('/dev/fd').length
}

/** Heap and array buffers that are still reachable. */
async function usedBytes(): Promise<number> {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  for (let i = 0; i < 3; i++) {
    await new Promise(resolve => setTimeout(resolve, 10))
    collect()
  }
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
