// Disks that fail while experts are read: the evaluation fails with a name and a place, the context stays where it was,
// and the next call works if the disk does.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { ReadError } from '#moeflux/base/errors.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import type { ByteSource, Folder } from '#moeflux/files/source.js'
import { packTiny } from '../support/models/models.js'
import { expectSameBits } from '../support/ops/bands.js'

/** A folder whose expert files fail as told. */
class FaultyFolder implements Folder {
  failures = 0 // reads that fail before one succeeds
  good = Number.POSITIVE_INFINITY // reads until the disk fails for good
  reads = 0

  constructor(private readonly inner: Folder) {}

  get location() {
    return this.inner.location
  }

  readText(name: string) {
    return this.inner.readText(name)
  }

  async open(name: string): Promise<ByteSource> {
    const source = await this.inner.open(name)
    if (!name.startsWith('packed_experts')) return source
    return {
      name: source.name,
      size: source.size,
      close: () => source.close(),
      read: async (offset, target, signal) => {
        this.reads++
        if (--this.good < 0) this.failures = Number.POSITIVE_INFINITY
        if (this.failures > 0) {
          this.failures--
          throw new ReadError(source.name, offset, target.length, 'EIO: i/o error')
        }
        await source.read(offset, target, signal)
      },
    }
  }
}

describe('expert reads that fail (reference)', () => {
  let folder: FaultyFolder
  let model: Model
  beforeAll(async () => {
    folder = new FaultyFolder(await openNodeFolder(await packTiny(), { links: 'any' }))
  })
  beforeEach(async () => {
    folder.failures = 0
    folder.good = Number.POSITIVE_INFINITY
    await model?.close()
    // Room for 2·K experts only, so that every token reads.
    model = await openModel(folder, { backend: 'reference', expertMemory: 4 * 3 * 64 * 128 * 2 })
  })
  afterAll(() => model.close())

  const tokens = [1, 2, 3, 4, 5, 6, 7, 8]

  test('a read that fails once is tried again and nobody notices', async () => {
    const want = await model.createContext().evalPrompt(tokens)
    folder.failures = 2
    expectSameBits((await model.createContext().evalPrompt(tokens)) as Float32Array, want as Float32Array)
    expect(folder.failures).toBe(0)
  })

  test('a disk that keeps failing: ExpertReadError, the last token boundary, and on when it is back', async () => {
    const context = model.createContext()
    const want = await model.createContext().evalPrompt([...tokens, 9])
    await context.evalPrompt(tokens)
    const before = await context.saveState()
    folder.failures = Number.POSITIVE_INFINITY
    for (let i = 0; i < 3; i++) {
      await expect(context.evalToken(9)).rejects.toMatchObject({
        code: 'EXPERT_READ',
        layer: expect.any(Number),
        expert: expect.any(Number),
        file: expect.stringMatching(/packed_experts.layer_\d\d\.bin$/),
        offset: expect.any(Number),
      })
      expect(context.length).toBe(tokens.length)
    }
    folder.failures = 0
    expect(Buffer.compare(await context.saveState(), before)).toBe(0)
    expectSameBits(await context.evalToken(9), want as Float32Array)
  })

  test('in a long prompt: what came before the fault is kept', async () => {
    const prompt = Array.from({ length: 200 }, (_, i) => i)
    const want = await model.createContext().evalPrompt(prompt)
    const context = model.createContext()
    const running = context.evalPrompt(prompt, {
      onProgress: done => {
        if (done >= 64) folder.failures = Number.POSITIVE_INFINITY
      },
    })
    await expect(running).rejects.toMatchObject({ code: 'EXPERT_READ' })
    expect(context.length).toBe(64)
    folder.failures = 0
    expectSameBits((await context.evalPrompt(prompt.slice(64))) as Float32Array, want as Float32Array)
  })

  test('in the middle of a rewind: the context is as it was', async () => {
    const prompt = Array.from({ length: 200 }, (_, i) => i)
    const context = model.createContext()
    const want = (await context.evalPrompt(prompt)) as Float32Array
    await context.checkpoint()
    const state = await context.saveState()
    const start = folder.reads
    await context.evalPrompt(prompt)
    const readsOf200 = folder.reads - start
    await context.restore(200)
    folder.good = Math.floor(readsOf200 / 2) // past the first chunk
    await expect(context.rewind(190)).rejects.toMatchObject({ code: 'EXPERT_READ' })
    expect(folder.good).toBeLessThan(0)
    expect([context.tokens, context.checkpoints]).toEqual([prompt, [200]])
    expect(Buffer.compare(await context.saveState(), state)).toBe(0)
    expectSameBits((await context.rewind(200)) as Float32Array, want)
    folder.failures = 0
    folder.good = Number.POSITIVE_INFINITY
    expectSameBits(
      (await context.rewind(190)) as Float32Array,
      (await model.createContext().evalPrompt(prompt.slice(0, 190))) as Float32Array,
    )
    expect(context.checkpoints).toEqual([])
  })

  test('closing while reads are under way', async () => {
    const context = model.createContext()
    const running = Promise.allSettled([context.evalPrompt(Array.from({ length: 300 }, (_, i) => i))])
    await new Promise(resolve => setTimeout(resolve, 3))
    await model.close()
    const reads = folder.reads
    expect((await running)[0].status).toBe('rejected')
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(folder.reads).toBe(reads)
  })

  test('counters: each wanted expert is a hit or a miss, and every miss is one read', async () => {
    const context = model.createContext()
    const { routing } = await context.evaluate(tokens, { routing: true })
    const experts = routing[0].experts // [layers, tokens, K]
    let wanted = 0
    for (let layer = 0; layer < 4; layer++) wanted += new Set(experts.subarray(layer * 16, (layer + 1) * 16)).size
    const stats = model.stats()
    expect(stats.expertHits + stats.expertMisses).toBe(wanted)
    expect(stats.bytesRead).toBe(stats.expertMisses * 3 * 64 * 128 * 2)
    expect(stats.readLatencyMs.reduce((a, b) => a + b, 0)).toBe(stats.expertMisses)
    expect(stats).toMatchObject({ tokens: 8, promptTokens: 8, decodeTokens: 0, steps: 1, expertSlots: 4 })
  })
})
