// The plan of a model's memory: what is free, whether it fits, how many experts are kept, and what is said where it does
// not. Limits are made up here; real control groups are in test/apps/cli/memoryLimits.served.test.ts.
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type BudgetRequest, type BudgetWay, planBudget, spareBytes } from '#moeflux/backends/plan.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import { OutOfMemoryError } from '#moeflux/base/errors.js'
import { MemoryPlanError } from '#moeflux/base/memoryErrors.js'
import type { MemoryFacts } from '#moeflux/base/memoryFacts.js'
import { availableMemory } from '#moeflux/base/nodeMemory.js'
import { temporaryFolder } from '../support/models/packedFiles.js'
import { openDemoOnWasm } from '../support/wasm/wasmModels.js'

const MB = 1e6

function capped(bytes: number, limit = bytes): MemoryFacts {
  return { bytes, ceiling: bytes, limit, limitedBy: 'cgroup' }
}

describe.skipIf(process.platform !== 'linux')('what is free', () => {
  const system = (files: Readonly<Record<string, string>>) => {
    const root = temporaryFolder()
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), text)
    }
    return root
  }
  const meminfo =
    'MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:   10000 kB\nSwapFree:        4000 kB\n'

  test('on a machine: what it can give, and swap before anything is ended', () => {
    const root = system({ 'proc/meminfo': meminfo, 'proc/self/cgroup': '0::/\n' })
    expect(availableMemory(root)).toEqual({
      bytes: 10_240_000,
      ceiling: 14_336_000,
      limit: 16_384_000,
      limitedBy: 'machine',
    })
  })

  test('in a control group: without the cache that programs run from, and what is not on the disk yet', () => {
    const root = system({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '0::/a/b\n',
      'sys/fs/cgroup/a/b/memory.max': '8000000\n',
      'sys/fs/cgroup/a/b/memory.current': '5000000\n',
      'sys/fs/cgroup/a/b/memory.stat':
        'inactive_file 2000000\nactive_file 1000000\nfile_mapped 400000\nfile_dirty 300000\nfile_writeback 200000\n',
      'sys/fs/cgroup/a/memory.max': 'max\n',
      'sys/fs/cgroup/a/memory.current': '6000000\n',
    })
    const bytes = 8_000_000 - (5_000_000 - (3_000_000 - 900_000))
    expect(availableMemory(root)).toEqual({ bytes, ceiling: bytes, limit: 8_000_000, limitedBy: 'cgroup' })
  })

  test('in a group of the first version, and in the tightest of several', () => {
    const group = (path: string, limit: number, usage: number) => ({
      [`sys/fs/cgroup/memory${path}/memory.limit_in_bytes`]: `${limit}\n`,
      [`sys/fs/cgroup/memory${path}/memory.usage_in_bytes`]: `${usage}\n`,
      [`sys/fs/cgroup/memory${path}/memory.stat`]: 'total_inactive_file 1000\ntotal_dirty 400\n',
    })
    const root = system({
      'proc/meminfo': meminfo,
      'proc/self/cgroup': '4:cpu:/x\n3:memory:/outer/inner\n',
      ...group('/outer', 3_000_000, 2_500_000),
      ...group('/outer/inner', 2_000_000, 1_000_000),
    })
    expect(availableMemory(root)).toMatchObject({ bytes: 500_600, limit: 3_000_000, limitedBy: 'cgroup' })
  })
})

interface Drawn extends BudgetRequest<BudgetWay> {}

const requests: fc.Arbitrary<Drawn> = fc
  .record({
    free: fc.integer({ min: 0, max: 4000 }),
    isGroup: fc.boolean(),
    swap: fc.integer({ min: 0, max: 1000 }),
    resident: fc.integer({ min: 1, max: 1500 }),
    workspaces: fc.uniqueArray(fc.integer({ min: 0, max: 200 }), { minLength: 1, maxLength: 4 }),
    slot: fc.integer({ min: 1, max: 20 }),
    experts: fc.integer({ min: 1, max: 500 }),
    least: fc.integer({ min: 1, max: 32 }),
    asked: fc.option(fc.integer({ min: 0, max: 3000 }), { nil: undefined }),
    tokens: fc.integer({ min: 0, max: 20_000 }),
    isContext: fc.boolean(),
    threads: fc.integer({ min: 1, max: 8 }),
  })
  .map(d => {
    const bytes = d.free * MB
    const limit = bytes + 100 * MB
    const memory: MemoryFacts = d.isGroup
      ? { bytes, ceiling: bytes, limit, limitedBy: 'cgroup' }
      : { bytes, ceiling: bytes + d.swap * MB, limit, limitedBy: 'machine' }
    return {
      memory,
      ways: d.workspaces
        .sort((a, b) => b - a)
        .map((workspace, i) => ({
          slotCost: d.slot * MB * 1.01,
          parts: [
            { what: 'weights', bytes: d.resident * MB },
            { what: 'workspace', bytes: workspace * MB + d.threads * 10 * MB },
          ],
          notice: i === 0 ? null : `way ${i}`,
        })),
      slotBytes: d.slot * MB,
      experts: d.experts,
      leastSlots: Math.min(d.least, d.experts),
      expertMemory: d.asked === undefined ? undefined : Math.max(d.asked, Math.min(d.least, d.experts) * d.slot) * MB,
      tokens: d.tokens,
      tokenBytes: 40_000,
      isContext: d.isContext,
      threads: { count: d.threads, bytes: 10 * MB },
    }
  })

/** What a plan takes with so many slots. */
function total(request: Drawn, way: BudgetWay, slots: number): number {
  const parts = way.parts.reduce((sum, { bytes }) => sum + bytes, 0)
  return parts + request.tokens * request.tokenBytes + slots * way.slotCost
}

function attempt(request: Drawn) {
  try {
    return planBudget(request)
  } catch (error) {
    expect(error).toBeInstanceOf(MemoryPlanError)
    return error as MemoryPlanError
  }
}

describe('a budget', () => {
  test('stays below what would end the process, with as many experts as were asked for or fit', () => {
    fc.assert(
      fc.property(requests, request => {
        const { memory, ways, leastSlots, experts, expertMemory, slotBytes } = request
        const room = memory.ceiling - spareBytes(memory)
        const result = attempt(request)
        const asked = expertMemory === undefined ? null : Math.min(experts, Math.floor(expertMemory / slotBytes))
        const fits = ways.map(way => total(request, way, asked ?? leastSlots) <= room)
        if (result instanceof MemoryPlanError) {
          expect(fits).not.toContain(true)
          const { needed, free, parts } = result.shortage
          expect(needed).toBeGreaterThan(free)
          expect(parts.reduce((sum, { bytes }) => sum + bytes, 0)).toBeCloseTo(needed, 0)
          return
        }
        expect(result.way).toBe(ways[fits.indexOf(true)]) // the best that fits
        expect(total(request, result.way, result.slots)).toBeLessThanOrEqual(room)
        expect(result.slots).toBeGreaterThanOrEqual(leastSlots)
        expect(result.slots).toBeLessThanOrEqual(experts)
        if (asked !== null) expect(result.slots).toBe(asked)
      }),
      { numRuns: 2000 },
    )
  })

  test('that fails names options that are enough', () => {
    let helped = 0
    fc.assert(
      fc.property(requests, request => {
        const error = attempt(request)
        if (!(error instanceof MemoryPlanError)) return
        const { remedies } = error.shortage
        const value = (option: string) => remedies.find(remedy => remedy.option === option)?.value
        const threads = value('threads') ?? request.threads.count
        const saved = (request.threads.count - threads) * request.threads.bytes
        const changed: Drawn = {
          ...request,
          expertMemory: value('expertMemory') ?? request.expertMemory,
          tokens: value('contextLength') ?? request.tokens,
          threads: { ...request.threads, count: threads },
          ways: request.ways.map(way => ({
            ...way,
            parts: way.parts.map(part => (part.what === 'workspace' ? { ...part, bytes: part.bytes - saved } : part)),
          })),
        }
        if (remedies.length === 0) {
          expect(error.message).toMatch(/No option makes it fit$/)
          return
        }
        helped++
        expect(error.message).toMatch(/would fit$/)
        expect(threads).toBeGreaterThanOrEqual(1)
        expect(attempt(changed)).not.toBeInstanceOf(MemoryPlanError)
      }),
      { numRuns: 4000 },
    )
    expect(helped).toBeGreaterThan(50)
  })

  test('a model without experts needs all its weights, and is told how much would fit', () => {
    const way = { slotCost: 0, parts: [{ what: 'weights', bytes: 900 * MB }], notice: null }
    const rest = { tokens: 0, tokenBytes: 40_000, isContext: false, threads: { count: 1, bytes: 0 } }
    const request = { memory: capped(600 * MB), ways: [way], slotBytes: 0, experts: 0, leastSlots: 0, ...rest }
    const room = 600 * MB - spareBytes(request.memory)
    const message = `No option makes it fit. It has no experts that could stay on disk; ${Math.floor(room / MB)} MB of weights`
    expect(() => planBudget({ ...request, expertMemory: undefined })).toThrow(message)
    expect(() => planBudget({ ...request, expertMemory: MB })).toThrow('this model has no experts')
    expect(planBudget({ ...request, memory: capped(1200 * MB), expertMemory: undefined })).toMatchObject({ slots: 0 })
  })

  test('where nobody can tell what there is takes its part of what is free, and never refuses', () => {
    const base = fc.sample(requests, 1)[0]
    const memory: MemoryFacts = { bytes: 0, ceiling: Number.POSITIVE_INFINITY, limit: 0, limitedBy: 'machine' }
    const { slots, way } = planBudget({ ...base, memory, expertMemory: undefined })
    expect([slots, way]).toEqual([base.leastSlots, base.ways[0]])
  })

  test('says what it is about in one line', () => {
    const error = attempt({
      memory: capped(500 * MB, 700 * MB),
      ways: [{ slotCost: 2 * MB, parts: [{ what: 'weights', bytes: 450 * MB }], notice: null }],
      slotBytes: 2 * MB,
      experts: 100,
      leastSlots: 16,
      expertMemory: undefined,
      tokens: 4096,
      tokenBytes: 20_000,
      isContext: true,
      threads: { count: 1, bytes: 0 },
    })
    expect((error as Error).message).toBe(
      'the model needs 564 MB (weights 450 MB, state of 4096 tokens 82 MB, 16 experts 32 MB), and 477 MB are free under ' +
        "the control group's limit of 700 MB: 87 MB too little. No option makes it fit",
    )
  })
})

describe('the wasm backend under a limit', () => {
  const open = (facts: () => MemoryFacts, more = {}) =>
    openDemoOnWasm({ wasmHost: { ...nodeHost(), memory: facts }, ...more })
  const tokens = Array.from({ length: 96 }, (_, i) => 40 + ((i * 37) % 900))

  test('gives the same numbers in the thriftiest way as in the usual one', async () => {
    const results: Float32Array[] = []
    const notices: string[] = []
    const error = await open(() => capped(0, 10 * MB)).catch(error => error)
    const least = (error as MemoryPlanError).shortage.needed + spareBytes(capped(0, 10 * MB))
    await expect(open(() => capped(least - 1, 10 * MB))).rejects.toBeInstanceOf(MemoryPlanError)
    for (const bytes of [1000 * MB, least]) {
      const opened = await open(() => capped(bytes, 10 * MB), { onNotice: (line: string) => notices.push(line) })
      const sequence = opened.backend.createSequence()
      const chunk = opened.backend.chunkTokens
      let logits: Float32Array | null = null
      for (let at = 0; at < tokens.length; at += chunk) {
        const run = { sequence, tokens: tokens.slice(at, at + chunk), phase: 'prompt', output: 'last' } as const
        ;[{ logits }] = await opened.backend.step([run])
      }
      results.push(logits as unknown as Float32Array)
      await opened.close()
    }
    expect(notices).toEqual([
      expect.stringMatching(/memory is short: prompts in chunks of 32 tokens, \d+ compute threads, 2 readers$/),
    ])
    expect(results[1]).toEqual(results[0])
  })

  test('refuses a sequence that grows past it, and goes on when there is room again', async () => {
    let free = 1000 * MB
    const opened = await open(() => capped(free, 10 * MB))
    const { backend } = opened
    const sequence = backend.createSequence()
    const step = () => backend.step([{ sequence, tokens: tokens.slice(0, 64), phase: 'prompt', output: 'last' }])
    await step()
    free = 1 * MB
    let error: unknown = null
    for (let i = 0; i < 200 && error === null; i++) await step().catch(caught => (error = caught))
    expect(error).toBeInstanceOf(OutOfMemoryError)
    expect((error as Error).message).toMatch(/memory is full under the control group's limit of 10 MB/)
    const { length } = sequence
    free = 1000 * MB
    await step()
    expect(sequence.length).toBe(length + 64)
    sequence.release()
    await opened.close()
  })
})
