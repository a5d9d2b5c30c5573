// Experts on a GPU, in memory and on disk: the same answers as from one memory, whatever moves meanwhile, and the decisions
// that `simulate` replays. MOEFLUX_TIER_WALKS=200 for more walks, MOEFLUX_TIER_SEED for others.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import type { TierStats } from '#moeflux/backends/stats.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import type { ComputeThread, WasmHost } from '#moeflux/backends/wasm/platform.js'
import { DEFAULT_FILLS_PER_STEP, DEFAULT_MOVES_PER_STEP } from '#moeflux/experts/expertTiers.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import type { RoutingTrace, TraceStep } from '#moeflux/lab/traces/routingTrace.js'
import { simulateTiers } from '#moeflux/lab/traces/simulateTiers.js'
import { type FaultModel, faultModel } from '../../support/faults/faultBackends.js'
import { faultWalk } from '../../support/faults/faultWalk.js'
import { hybridWay, openTiered, USES_TO_PAY } from '../../support/models/tieredBackend.js'
import { expectClose, KERNEL } from '../../support/ops/bands.js'
import { seededRandom } from '../../support/random.js'

const { MOEFLUX_TIER_WALKS, MOEFLUX_TIER_SEED = '1' } = process.env
let model: FaultModel
let oracle: Backend
beforeAll(async () => {
  model = await faultModel()
  const { expertsPerToken } = model.packed.config
  oracle = await openReferenceBackend(model.packed, { precision: 'exact', expertsPerToken })
})
afterAll(async () => {
  await oracle.close()
  await model.close()
})

const all = 30 // experts of all layers
const least = 4 // slots, of the GPU or of memory: twice what a token chooses

describe('random walks over tiers of random sizes, on a disk that fails now and then', () => {
  const walks = Number(MOEFLUX_TIER_WALKS ?? 3)
  const seeds = Array.from({ length: walks }, (_, i) => Number(MOEFLUX_TIER_SEED) + i)
  test.each(seeds)('seed %i', { timeout: 120_000 }, async seed => {
    const random = seededRandom(seed)
    const slots = () => least + Math.floor(random() * (all - least))
    const disk = new ReadFaults()
    const sizes = { gpu: slots(), memory: slots() }
    const prompts = { uploadFromTokens: 1 + Math.floor(random() * 4) }
    const way = (threads: number) => ({ ...hybridWay(threads), prompts })
    const backend = await openTiered(model.packed, sizes, { readFaults: disk.buffer }, { way })
    const report = await faultWalk({ backend, disk, oracle, seed, steps: 16, tolerance: 1e-3 })
    await backend.close()
    expect(report.problem, JSON.stringify({ ...sizes, ...prompts })).toBeNull()
  })
})

test('empty slots fill while nobody asks for anything, each expert once', { timeout: 120_000 }, async () => {
  const backend = await openTiered(model.packed, { gpu: 8, memory: all - 8 })
  try {
    const held = () => {
      const { gpu, memory } = backend.stats().tiers as TierStats
      return [gpu.used, memory.used]
    }
    await backend.loaded()
    expect(held()).toEqual([8, all - 8])
    expect(backend.residency().reduce((sum, one) => sum + one, 0)).toBe(all)
  } finally {
    await backend.close()
  }
})

test('a thread that dies ends the model with an error, and nothing has changed', { timeout: 120_000 }, async () => {
  const host = nodeHost()
  const threads: ComputeThread[] = []
  const startThread: WasmHost['startThread'] = (setup, events) => {
    const thread = host.startThread(setup, events)
    threads.push(thread)
    return thread
  }
  const wasmHost = { ...host, startThread }
  const backend = await openTiered(model.packed, { gpu: least, memory: 10 }, { threads: 2, wasmHost })
  const sequence = backend.createSequence()
  const step = (tokens: readonly number[]) =>
    backend.step([{ sequence, tokens, phase: tokens.length > 1 ? 'prompt' : 'decode', output: 'last' }])
  await step([3, 9, 27])
  const running = step([11]).catch((error: Error) => error)
  await threads[1].terminate()
  const outcome = await running
  const length = outcome instanceof Error ? 3 : 4
  if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'DEVICE_LOST' })
  for (const tokens of [[5], [7, 8]]) await expect(step(tokens)).rejects.toMatchObject({ code: 'DEVICE_LOST' })
  expect(sequence.length).toBe(length)
  expect(backend.failure).toMatchObject({ code: 'DEVICE_LOST' })
  await backend.close()
})

test('where little is missing, submissions of several layers, in pieces, give what the reference gives', async () => {
  const { vocabSize } = model.packed.config
  const backend = await openTiered(model.packed, { gpu: all - 3, memory: least }, { prefetch: false })
  try {
    const random = seededRandom(5)
    const sequences = [backend.createSequence(), oracle.createSequence()]
    for (let step = 0; step < 30; step++) {
      const tokens = [Math.floor(random() * vocabSize)]
      const [got, want] = await Promise.all(
        [backend, oracle].map((one, i) =>
          one.step([{ sequence: sequences[i], tokens, phase: 'decode', output: 'last' }]),
        ),
      )
      expectClose(got[0].logits as Float32Array, want[0].logits as Float32Array, KERNEL)
    }
    const { tiers } = backend.stats()
    expect(tiers?.computedOnCpu, 'some were left to the host').toBeGreaterThan(3)
    for (const sequence of sequences) sequence.release()
  } finally {
    await backend.close()
  }
})

test('a prompt finds in memory what was on disk when the layer before began', { timeout: 120_000 }, async () => {
  const { numLayers, vocabSize } = model.packed.config
  const disk = new ReadFaults()
  const prompts = { uploadFromTokens: 3 }
  const way = (threads: number) => ({ ...hybridWay(threads), prompts })
  const backend = await openTiered(model.packed, { gpu: least, memory: 12 }, { readFaults: disk.buffer }, { way })
  try {
    await backend.loaded()
    disk.set('none', { delayMs: 3 })
    const random = seededRandom(8)
    const sequences = [backend.createSequence(), oracle.createSequence()]
    let wanted = 0
    for (let chunk = 0; chunk < 4; chunk++) {
      const tokens = Array.from({ length: 8 }, () => Math.floor(random() * vocabSize))
      const [[got], [want]] = await Promise.all(
        [backend, oracle].map((one, i) =>
          one.step([{ sequence: sequences[i], tokens, phase: 'prompt', output: 'last' }], { routing: true }),
        ),
      )
      expectClose(got.logits as Float32Array, want.logits as Float32Array, KERNEL)
      const perLayer = tokens.length * model.packed.config.expertsPerToken
      const routing = got.routing as Uint16Array
      for (let layer = 0; layer < numLayers; layer++) {
        wanted += new Set(routing.subarray(layer * perLayer, (layer + 1) * perLayer)).size
      }
    }
    const { prefetchHits, prefetchReads, tiers } = backend.stats()
    const told = JSON.stringify({ wanted, prefetchHits, prefetchReads, tiers })
    expect((tiers?.gpu.hits ?? 0) + (tiers?.memory.hits ?? 0) + (tiers?.disk.hits ?? 0), told).toBe(wanted)
    expect(prefetchHits, told).toBeGreaterThan(wanted / 6)
    for (const sequence of sequences) sequence.release()
  } finally {
    await backend.close()
  }
})

describe('what the engine does', () => {
  test('follows from what it measures when it is opened, and it says so', { timeout: 120_000 }, async () => {
    const notices: string[] = []
    const onNotice = (notice: string) => notices.push(notice)
    const backend = await openTiered(model.packed, { gpu: 8, memory: 12 }, { threads: 2, onNotice }, {})
    try {
      const line = notices.find(notice => /[\d]+ µs to send to the GPU, which answers in [\d]+ µs/.test(notice))
      expect(line, notices.join('; ')).toContain('2 threads')
      const { tiers } = backend.stats()
      expect(tiers === null, line).toBe(line?.includes('sent to it when needed'))
      const [got, want] = await Promise.all(
        [backend, oracle].map(async each => {
          const run = { sequence: each.createSequence(), tokens: [3, 9, 27], phase: 'prompt', output: 'last' } as const
          return (await each.step([run]))[0].logits as Float32Array
        }),
      )
      expectClose(got, want, KERNEL)
    } finally {
      await backend.close()
    }
  })

  test('is what a replay of its routing says, tier by tier', { timeout: 120_000 }, async () => {
    const sizes = { gpu: 8, memory: 12 }
    const { expertsPerToken, numLayers: layers, numExperts: experts, vocabSize } = model.packed.config
    const backend = await openTiered(model.packed, sizes, { prefetch: false })
    const random = seededRandom(3)
    const token = () => Math.floor(random() ** 3 * vocabSize) // some much oftener than others
    const steps: TraceStep[] = []
    try {
      const sequence = backend.createSequence()
      for (let step = 0; step < 200; step++) {
        const isPrompt = step % 50 === 0
        if (isPrompt) await sequence.clear()
        const tokens = isPrompt ? Array.from({ length: 6 }, token) : [token()]
        const phase = isPrompt ? 'prompt' : 'decode'
        const [{ routing }] = await backend.step([{ sequence, tokens, phase, output: 'none' }], { routing: true })
        steps.push({ tokens: tokens.length, experts: routing as Uint16Array })
      }
      const { tiers } = backend.stats()
      if (tiers === null) throw new Error('no tiers')
      const expertBytes = 100
      const engine = { backend: 'webgpu', policy: 'lrfu', slots: 20, hits: 0, misses: 0, computeSecondsPerToken: 0 }
      const trace: RoutingTrace = { model: 'dice', layers, experts, expertsPerToken, expertBytes, engine, steps }
      const rules = {
        bytesPerStep: DEFAULT_MOVES_PER_STEP * expertBytes,
        usesToPay: USES_TO_PAY,
        fillsPerStep: DEFAULT_FILLS_PER_STEP,
        uploadFromTokens: 64,
      }
      const pools = Math.floor(sizes.gpu / least)
      const { all: replayed } = simulateTiers(trace, 'lrfu', { gpuSlots: 8, memorySlots: 12, pools }, rules)
      const wanted = replayed.gpu + replayed.memory + replayed.disk
      expect(tiers.gpu.hits + tiers.memory.hits + tiers.disk.hits).toBe(wanted)
      for (const [name, got, want] of [
        ['gpu', tiers.gpu.hits, replayed.gpu],
        ['memory', tiers.memory.hits, replayed.memory],
        ['disk', tiers.disk.hits, replayed.disk],
      ] as const) {
        expect(Math.abs(got - want) / wanted, `${name}: ${got} of ${wanted}, replayed ${want}`).toBeLessThan(0.01)
      }
      expect(replayed.disk / wanted, 'some are on disk').toBeGreaterThan(0.05)
      expect(tiers.promotions, 'some go up').toBeGreaterThan(6)
    } finally {
      await backend.close()
    }
  })
})
