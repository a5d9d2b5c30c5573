// Saved states on every backend: the bytes are those of the format, they move between backends, and a bad one changes
// nothing.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LayerState } from '#moeflux/backends/backend.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import { encodeLayer, snapshotHeader } from '#moeflux/engine/snapshot.js'
import { decodeEnvelope, encodeEnvelope } from '#moeflux/engine/snapshotEnvelope.js'
import { PagedStates } from '#moeflux/stores/pagedStates.js'
import { stateBackends as backends } from '../support/backends.js'
import { MemoryStore } from '../support/memoryStore.js'
import { demoModel, packTiny } from '../support/models/models.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'

let folder: string
let foreign: Uint8Array // another model's state
const models = new Map<string, Model>() // by backend
beforeAll(async () => {
  folder = await packTiny()
  for (const { name, options } of backends) models.set(name, await openModel(folder, options))
  const demo = await openModel(demoModel, { backend: 'wasm', threads: 1 })
  const context = demo.createContext()
  await context.evalPrompt([1, 2, 3])
  foreign = await context.saveState()
  await demo.close()
})
afterAll(() => Promise.all([...models.values()].map(model => model.close())))

const tokens = Array.from({ length: 100 }, (_, i) => (i * 37) % 512)

describe.each(backends)('snapshots on $name', backend => {
  let model: Model
  beforeAll(() => {
    model = models.get(backend.name) as Model
  })

  /** The tiny model: three linear layers, then a full one with one kv head of 64. */
  function handMade(length: number): Uint8Array {
    const random = seededRandom(5)
    const convFloats = 3 * 256
    const stateFloats = 2 * 64 * 64
    const parts: Uint8Array[] = []
    const add = (array: Uint32Array | Int32Array | Float32Array) => {
      parts.push(new Uint8Array(array.buffer))
    }
    add(Uint32Array.of(0x4d464c58, 1, 4, 4, 1, 64, convFloats * 4, stateFloats * 4))
    for (let layer = 0; layer < 3; layer++) {
      add(randomFloats(random, convFloats))
      add(randomFloats(random, stateFloats, 0.1))
    }
    add(Int32Array.of(length))
    add(randomFloats(random, length * 64))
    add(randomFloats(random, length * 64))
    return new Uint8Array(Buffer.concat(parts))
  }

  test('a hand-made file loads, and the saved one equals it byte for byte', async () => {
    const bytes = handMade(77)
    const context = model.createContext()
    await context.loadState(bytes, tokens.slice(0, 77))
    expect(context.length).toBe(77)
    expect(context.stateSize()).toBe(bytes.length)
    expect(Buffer.compare(await context.saveState(), bytes)).toBe(0)
    const logits = await context.evalToken(3)
    expect(logits.every(Number.isFinite)).toBe(true)
    await context.close()
  })

  test('loading and going on equals never having stopped', async () => {
    const first = model.createContext()
    await first.evalPrompt(tokens.slice(0, 70))
    const bytes = await first.saveState()
    const want = await first.evalPrompt(tokens.slice(70))
    const second = model.createContext()
    await second.evalPrompt([1, 2, 3])
    await second.checkpoint()
    await second.loadState(bytes, tokens.slice(0, 70))
    expect(second.checkpoints).toEqual([])
    expect(second.tokens).toEqual(tokens.slice(0, 70))
    expectSameBits((await second.evalPrompt(tokens.slice(70))) as Float32Array, want as Float32Array)
    const empty = model.createContext()
    await empty.loadState(await model.createContext().saveState(), [])
    expect(empty.length).toBe(0)
    await Promise.all([first, second, empty].map(context => context.close()))
  })

  test('through the envelope, exact and compact', async () => {
    const context = model.createContext()
    const logits = await context.evalPrompt(tokens.slice(0, 60))
    const snapshot = await context.saveState()
    const content = { fingerprint: model.fingerprint, tokens: tokens.slice(0, 60), logits, snapshot }
    const want = (await context.evalToken(9)) as Float32Array
    for (const body of ['exact', 'f16', 'bf16'] as const) {
      const bytes = await encodeEnvelope(content, model.config, body)
      const back = await decodeEnvelope(bytes, model)
      await context.loadState(back.snapshot, back.tokens, back.logits ?? undefined)
      expectSameBits((await context.rewind(60)) as Float32Array, logits as Float32Array, 'kept logits')
      const got = await context.evalToken(9)
      if (body === 'exact') expectSameBits(got, want)
      else expectClose(got, want, { cosine: 0.999, maxDifference: 0.1 }, body)
    }
    await context.close()
  })

  test('as objects of a store: exact, and close with keys and values of 16 bits', async () => {
    const ids = Array.from({ length: 140 }, (_, i) => (i * 53 + 7) % 512) // a page, and rows after it
    const context = model.createContext()
    await context.evalPrompt(ids)
    const kept = await context.keep()
    const want = await context.evalToken(9)
    const store = new MemoryStore()
    const inTime = <T>(work: (signal: AbortSignal) => Promise<T>) => work(new AbortController().signal)
    for (const body of ['f32', 'bf16'] as const) {
      const states = new PagedStates(store, model, body, body)
      await states.save(kept, '', inTime)
      await states.restore(context, states.names(ids, ''), ids, inTime)
      expect(context.tokens).toEqual(ids)
      const got = await context.evalToken(9)
      if (body === 'f32') expectSameBits(got, want)
      else {
        expectClose(got, want, { cosine: 0.999, maxDifference: 0.1 }, body)
        expect(got).not.toEqual(want) // it is rounded
      }
    }
    kept.release()
    await context.close()
  })

  test('a bad snapshot changes nothing', async () => {
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 20))
    await context.checkpoint()
    await context.evalPrompt(tokens.slice(20, 30))
    const before = await context.saveState()
    const good = handMade(5)
    const bad: Uint8Array[] = [new Uint8Array(0), good.slice(0, 31), good.slice(0, -1), Uint8Array.of(...good, 0)]
    const lengthAt = 32 + 3 * (3 * 256 + 2 * 64 * 64) * 4
    for (const [offset, value] of [
      ...Array.from({ length: 8 }, (_, i) => [i * 4, 12345]),
      [lengthAt, -1],
      [lengthAt, 0x7fffffff],
      [lengthAt, 6],
      [lengthAt, 4],
    ]) {
      const copy = good.slice()
      new DataView(copy.buffer).setInt32(offset, value, true)
      bad.push(copy)
    }
    for (const bytes of bad) await expect(context.loadState(bytes)).rejects.toMatchObject({ name: 'SnapshotError' })
    await expect(context.loadState(good, [1, 2])).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(context.loadState(good, [1, 2, 3, 4, 512])).rejects.toMatchObject({ code: 'BAD_TOKEN' })
    expect(context.checkpoints).toEqual([20])
    expect(context.tokens).toEqual(tokens.slice(0, 30))
    expect(Buffer.compare(await context.saveState(), before)).toBe(0)
    await context.close()
  })

  test("another model's state is refused", async () => {
    const context = model.createContext()
    await expect(context.loadState(foreign)).rejects.toMatchObject({ code: 'ShapeMismatch' })
    await context.close()
  })

  test('without its tokens: usable, and a rewind into it says why not', async () => {
    const first = model.createContext()
    await first.evalPrompt(tokens.slice(0, 40))
    const bytes = await first.saveState()
    const { logits } = await first.evaluate(tokens.slice(40, 60), { logits: 'all' })
    const at = (length: number) => (logits as Float32Array).subarray((length - 41) * 512, (length - 40) * 512)
    const context = model.createContext()
    await context.loadState(bytes)
    expect(context.length).toBe(40)
    expect(context.tokens).toEqual(new Array(40).fill(-1))
    await context.evalPrompt(tokens.slice(40, 60))
    expect(context.tokens).toEqual([...new Array(40).fill(-1), ...tokens.slice(40, 60)])
    await expect(context.rewind(39)).rejects.toMatchObject({ code: 'TOKENS_UNKNOWN', knownFrom: 40 })
    expect(context.length).toBe(60)
    expectSameBits((await context.rewind(50)) as Float32Array, at(50), 'after the snapshot')
    expect(await context.rewind(40)).toBeNull()
    expectSameBits((await context.evalPrompt(tokens.slice(40, 45))) as Float32Array, at(45), 'at the snapshot')
    await context.rewind(0)
    expect(context.tokens).toEqual([])
    await Promise.all([first.close(), context.close()])
  })
})

test('a state saved on one backend goes on, within the bands, on every other', async () => {
  const opened = backends.map(backend => ({ backend, model: models.get(backend.name) as Model }))
  const states: Uint8Array[] = []
  for (const { model } of opened) {
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 90))
    states.push(await context.saveState())
  }
  const oracle = opened[0].model.createContext()
  const want = (await oracle.evalPrompt(tokens)) as Float32Array
  for (const { backend, model } of opened) {
    for (const bytes of states) {
      const context = model.createContext()
      await context.loadState(bytes, tokens.slice(0, 90))
      expectClose((await context.evalPrompt(tokens.slice(90))) as Float32Array, want, backend.logits, backend.name)
      expect(context.tokens).toEqual(tokens)
      await context.close()
    }
  }
})

test('layers are encoded as the format has them', async () => {
  const model = await openModel(folder, { backend: 'reference' })
  const header = new Uint32Array(snapshotHeader(model.config).buffer)
  expect([...header]).toEqual([0x4d464c58, 1, 4, 4, 1, 64, 3072, 32768])
  const state: LayerState = { kind: 'full_attention', keys: Float32Array.of(1), values: Float32Array.of(2) }
  expect(encodeLayer(state, 1).map(part => part.length)).toEqual([4, 4, 4])
  await model.close()
})
