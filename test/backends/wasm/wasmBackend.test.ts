// What the wasm backend promises beyond the bands that all backends share: the same bits for every cut, batch, number of
// threads, number of memories and size of the expert cache.
import { availableParallelism } from 'node:os'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, StepOutput } from '#moeflux/backends/backend.js'
import type { HostedOptions, WasmInternals } from '#moeflux/backends/wasm/platform.js'
import { expectClose, expectSameBits, FAST_LOGITS } from '../../support/ops/bands.js'
import { seededRandom } from '../../support/random.js'
import {
  evaluate,
  expectSameSnapshot,
  fresh,
  type OpenedWasm,
  openDemoOnWasm,
  type Snapshot,
} from '../../support/wasm/wasmModels.js'

const random = seededRandom(7)
const prompt = Array.from({ length: 135 }, () => Math.floor(random() * 8000)) // three K/V pages

const slotBytes = 57_344 // an expert of the demo model, up to the next 4096 bytes
const topK = 4

const builds = (['relaxed', 'baseline'] as const).flatMap(simd =>
  (['exact', 'fast'] as const).map(precision => ({ simd, precision })),
)

describe.each(builds)('$simd SIMD, $precision', ({ simd, precision }) => {
  let opened: OpenedWasm
  let backend: Backend
  let whole: Snapshot

  beforeAll(async () => {
    opened = await openDemoOnWasm({ precision, threads: 2 }, { simd })
    backend = opened.backend
    whole = await fresh(backend, prompt)
  })
  afterAll(() => opened.close())

  test('says what it is', () => {
    expect(backend.description).toBe(`wasm, 2 threads, ${simd} SIMD, ${precision}`)
  })

  test('the same bits for any cut into calls, and from run to run', async () => {
    for (const pieces of [[1], [3, 1, 4, 5], [63, 2]]) {
      expectSameSnapshot(await fresh(backend, prompt, pieces), whole)
    }
  })

  test('the same bits alone and in a batch, whatever the others do', async () => {
    const lengths = [100, 40, 1, 7]
    const tokens = lengths.map((length, i) => prompt.slice(i, i + length))
    const alone = await Promise.all(tokens.map(list => fresh(backend, list)))
    const sequences = tokens.map(() => backend.createSequence())
    const done = tokens.map(() => 0)
    const last: (Float32Array | null)[] = tokens.map(() => null)
    for (let step = 0; done.some((count, i) => count < tokens[i].length); step++) {
      const runs = sequences.flatMap((sequence, i) => {
        const piece = tokens[i].slice(done[i], done[i] + 1 + ((step * 5 + i * 3) % 11))
        done[i] += piece.length
        return piece.length === 0 ? [] : [{ i, sequence, tokens: piece, phase: 'prompt', output: 'last' } as const]
      })
      const outputs = await backend.step(runs)
      runs.forEach(({ i }, at) => {
        last[i] = outputs[at].logits
      })
    }
    last.forEach((logits, i) => {
      expectSameBits(logits as Float32Array, alone[i].logits, `sequence ${i}`)
    })
    for (const sequence of sequences) sequence.release()
  })

  test('the same bits on one thread', async () => {
    const other = await openDemoOnWasm({ precision, threads: 1 }, { simd })
    try {
      expectSameSnapshot(await fresh(other.backend, prompt, [100, 1]), whole)
    } finally {
      await other.close()
    }
  })
})

test('a number of threads that was meant for another machine is told and not taken', async () => {
  const notices: string[] = []
  const { backend, close } = await openDemoOnWasm({ threads: 1024, onNotice: line => notices.push(line) })
  const processors = availableParallelism()
  expect(backend.description).toContain(`wasm, ${processors} thread`)
  expect(notices.find(line => line.startsWith('1024 threads on'))).toContain(`${processors} will compute`)
  await close()
})

describe('the same bits', () => {
  let whole: Snapshot
  beforeAll(async () => {
    const opened = await openDemoOnWasm()
    whole = await fresh(opened.backend, prompt)
    await opened.close()
  })

  const others: { what: string; options?: Partial<HostedOptions>; internals?: WasmInternals }[] = [
    { what: 'three threads', options: { threads: 3 } },
    { what: 'many small memories', internals: { bankLimit: 4_000_000, chunkTokens: 32 } },
    { what: 'a cache of 2 K experts', options: { expertMemory: 2 * topK * slotBytes } },
    {
      what: 'a cache of 2 K experts and no prefetch',
      options: { expertMemory: 2 * topK * slotBytes, prefetch: false },
    },
  ]
  test.each(others)('with $what', async ({ options, internals }) => {
    const other = await openDemoOnWasm(options, internals)
    try {
      expectSameSnapshot(await fresh(other.backend, prompt, [other.backend.chunkTokens]), whole)
      expectSameSnapshot(await fresh(other.backend, prompt, [29, 1, 1]), whole)
    } finally {
      await other.close()
    }
  })

  test('nearly, with the other build', async () => {
    const opened = await openDemoOnWasm({}, { simd: 'baseline' })
    const { logits } = await fresh(opened.backend, prompt)
    await opened.close()
    expectClose(logits, whole.logits, FAST_LOGITS)
  })
})

describe('steps', () => {
  let opened: OpenedWasm
  let backend: Backend
  beforeAll(async () => {
    opened = await openDemoOnWasm()
    backend = opened.backend
  })
  afterAll(() => opened.close())

  test('give the logits of all rows, of the last one, the best token, or nothing', async () => {
    const { vocabSize } = backend.config
    const tokens = prompt.slice(0, 50)
    const one = async (output: 'none' | 'last' | 'all' | 'argmax'): Promise<StepOutput> => {
      const sequence = backend.createSequence()
      const [result] = await backend.step([{ sequence, tokens, phase: 'prompt', output }])
      expect(sequence.length).toBe(50)
      sequence.release()
      return result
    }
    const all = (await one('all')).logits as Float32Array
    const last = (await one('last')).logits as Float32Array
    expect(all.length).toBe(50 * vocabSize)
    expectSameBits(all.slice(49 * vocabSize), last)
    const sequence = backend.createSequence()
    for (const [i, token] of tokens.entries()) {
      const logits = await evaluate(backend, sequence, [token])
      expectSameBits(all.slice(i * vocabSize, (i + 1) * vocabSize), logits, `row ${i}`)
    }
    const best = last.indexOf(last.reduce((a, b) => Math.max(a, b)))
    expect(await one('argmax')).toEqual({ logits: null, argmax: best, kept: 50, routing: null })
    expect(await one('none')).toEqual({ logits: null, argmax: null, kept: 50, routing: null })
  })

  test('tell which experts each token used', async () => {
    const tokens = prompt.slice(0, 20)
    const sequence = backend.createSequence()
    const run = { sequence, tokens, phase: 'prompt', output: 'none' } as const
    const { layers } = await backend.probe(sequence, { tokens })
    const [{ routing }] = await backend.step([run], { routing: true })
    const picks = layers.flatMap(({ routerIndices }) => [...routerIndices])
    expect([...(routing as Uint16Array)]).toEqual(picks)
  })

  test('a probe of more tokens than a chunk equals one in a single chunk, and changes nothing', async () => {
    const small = await openDemoOnWasm({}, { chunkTokens: 16 })
    const tokens = prompt.slice(0, 40)
    const sequence = small.backend.createSequence()
    await evaluate(small.backend, sequence, prompt.slice(40, 50))
    const other = backend.createSequence()
    await evaluate(backend, other, prompt.slice(40, 50))
    const got = await small.backend.probe(sequence, { tokens })
    const want = await backend.probe(other, { tokens })
    expect(sequence.length).toBe(10)
    expectSameBits(got.logits as Float32Array, want.logits as Float32Array)
    got.layers.forEach((layer, i) => {
      expectSameBits(layer.out, want.layers[i].out, `layer ${i}`)
      expect([...layer.routerIndices]).toEqual([...want.layers[i].routerIndices])
    })
    await small.close()
  })

  test('held states share pages, survive what follows, and can be restored by others', async () => {
    const sequence = backend.createSequence()
    const logits70 = await evaluate(backend, sequence, prompt.slice(0, 70))
    const held = await sequence.hold()
    expect(held.bytes).toBe(0)
    const onward = await evaluate(backend, sequence, prompt.slice(70))
    expect(held.bytes).toBeGreaterThan(0)
    const other = backend.createSequence()
    for (const each of [sequence, other, sequence]) {
      await each.restore(held)
      expect(each.length).toBe(70)
      expectSameBits(await evaluate(backend, each, prompt.slice(70), [11]), onward)
    }
    await other.clear()
    expectSameBits(await evaluate(backend, other, prompt.slice(0, 70)), logits70)
    for (const each of [held, sequence, other]) each.release()
  })

  test('states travel through export and import', async () => {
    const sequence = backend.createSequence()
    await evaluate(backend, sequence, prompt.slice(0, 100))
    const layers = []
    for (let layer = 0; layer < backend.config.numLayers; layer++) layers.push(await sequence.exportLayer(layer))
    const other = backend.createSequence()
    await evaluate(backend, other, prompt.slice(30, 60))
    await other.importLayers(100, layers)
    expectSameBits(
      await evaluate(backend, other, prompt.slice(100)),
      await evaluate(backend, sequence, prompt.slice(100)),
    )
  })
})
