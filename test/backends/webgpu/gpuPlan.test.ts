// Where experts go with a GPU of some size: sizes are made up here; what a device really creates is compared in
// test/backends/webgpu/gpuSizes.gpu.test.ts.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { HostSide } from '#moeflux/backends/plan.js'
import { hostSide } from '#moeflux/backends/wasm/cpuTierPlan.js'
import { type GpuModel, type GpuPlan, planGpu, planSharedGpu } from '#moeflux/backends/webgpu/open/gpuPlan.js'
import { OptionError } from '#moeflux/base/errors.js'
import { MemoryPlanError } from '#moeflux/base/memoryErrors.js'
import type { MemoryFacts } from '#moeflux/base/memoryFacts.js'
import { presets } from '#moeflux/model/presets.js'
import { expertBytes, FOUR_BIT, residentBytes } from '#moeflux/model/sizes.js'

const GB = 1e9
const { config } = presets.a3b
const slotBytes = expertBytes(config, FOUR_BIT)
const experts = config.numLayers * config.numExperts
const model: GpuModel = {
  config,
  expertsPerToken: config.expertsPerToken,
  precision: 'fast',
  weightBytes: residentBytes(config, FOUR_BIT),
  slotBytes,
  recordBytes: slotBytes,
  hasShared: true,
  planned: { tokens: 4096, sequences: 1, isContext: true },
  maxBufferBytes: 2 ** 32 - 4,
}

function facts(bytes: number, ceiling = bytes): MemoryFacts {
  return { bytes, ceiling, limit: bytes, limitedBy: 'machine' }
}

function host(memory: MemoryFacts, expertMemory?: number): HostSide {
  return hostSide({
    config,
    forms: [{ block: null, bits: 4, group: 64, precision: 'fast' }],
    expertSize: slotBytes,
    expertsPerToken: config.expertsPerToken,
    maxRows: 512,
    memory,
    expertMemory,
    cores: 16,
    readers: 22,
    threadBytes: { compute: 11e6, reader: 7.5e6 },
    stagingBytes: 56 * slotBytes,
  })
}

function plan(
  gpuBytes: number,
  memory = 64 * GB,
  options: { gpuMemory?: number; expertMemory?: number } = {},
): GpuPlan {
  const { gpuMemory, expertMemory } = options
  return planGpu({ model, gpuBytes, gpuMemory, host: host(facts(memory), expertMemory) })
}

describe('a GPU of its own memory', () => {
  test('that holds everything leaves nothing to others', () => {
    const { gpuSlots, memorySlots, diskExperts, pools, line } = plan(24 * GB)
    expect([gpuSlots, memorySlots, diskExperts]).toEqual([experts, 0, 0])
    expect(pools).toMatchObject({ pools: config.numLayers, slots: config.numExperts })
    expect(line).toMatch(/^GPU: [\d.]+ GB weights and state, 10,240 experts \([\d.]+ GB\); memory: 0; disk: 0$/)
  })

  test('of 8 GB keeps what it can, memory the rest', () => {
    const { fixedBytes, gpuSlots, memorySlots, diskExperts, line } = plan(8 * GB)
    expect(fixedBytes).toBeGreaterThan(model.weightBytes)
    expect(fixedBytes).toBeLessThan(model.weightBytes + GB)
    expect(gpuSlots * slotBytes).toBeGreaterThan(8 * GB - fixedBytes - config.numLayers * slotBytes)
    expect(gpuSlots + memorySlots).toBeGreaterThanOrEqual(experts) // some pass through the GPU, and are in memory
    expect(gpuSlots + memorySlots).toBeLessThan(1.03 * experts)
    expect(diskExperts).toBe(0)
    expect(line).toMatch(/GPU: [\d.]+ GB weights and state, [\d,]+ experts \([\d.]+ GB\); memory: [\d,]+ experts/)
  })

  test('and too little memory: the rest is on disk', () => {
    const { gpuSlots, memorySlots, diskExperts } = plan(8 * GB, 8 * GB)
    expect(memorySlots).toBeGreaterThan(16)
    expect(diskExperts).toBeGreaterThan(0)
    expect(gpuSlots + memorySlots + diskExperts).toBe(experts)
  })

  test('and no memory to speak of: experts go from disk to the GPU', () => {
    expect(plan(8 * GB, 0.2 * GB)).toMatchObject({ memorySlots: 0, missing: 0 })
  })

  test('options say what experts take on either side', () => {
    const chosen = plan(8 * GB, 64 * GB, { gpuMemory: 2 * GB, expertMemory: GB })
    expect(chosen.gpuSlots * slotBytes).toBeLessThanOrEqual(2 * GB)
    expect(chosen.gpuSlots * slotBytes).toBeGreaterThan(1.9 * GB)
    expect(chosen.memorySlots).toBe(Math.floor(GB / (Math.ceil(slotBytes / 4096) * 4096)))
    // More than there is: as much as there is.
    expect(plan(8 * GB, 64 * GB, { gpuMemory: 12 * GB }).gpuSlots).toBe(plan(8 * GB).gpuSlots)
    expect(() => plan(8 * GB, 64 * GB, { gpuMemory: 1000 })).toThrow(OptionError)
  })

  test('that lacks room for the fixed part says by how much, and what helps', () => {
    const small = plan(1 * GB)
    expect(small.missing).toBeGreaterThan(0)
    expect(small.line).toMatch(
      /too small by [\d.]+ GB .*weights [\d.]+ GB.*; the processor can run it \(backend wasm\)$/,
    )
    const long = { ...model, planned: { tokens: 262_144, sequences: 1, isContext: true } }
    const { line } = planGpu({ model: long, gpuBytes: 8 * GB, host: null })
    const tokens = Number(/; contextLength (\d+) would fit$/.exec(line)?.[1])
    const shorter = { ...model, planned: { tokens, sequences: 1, isContext: true } }
    expect(planGpu({ model: shorter, gpuBytes: 8 * GB, host: null }).missing).toBe(0)
  })

  test('any sizes: never more than there is, every expert somewhere, more room is never worse', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 30_000 }), fc.integer({ min: 0, max: 64_000 }), (gpuMb, memoryMb) => {
        const chosen = plan(gpuMb * 1e6, memoryMb * 1e6)
        if (chosen.missing > 0) {
          expect(plan(gpuMb * 1e6 + chosen.missing, memoryMb * 1e6).missing).toBe(0)
          return
        }
        expect(chosen.fixedBytes + chosen.gpuSlots * slotBytes).toBeLessThanOrEqual(gpuMb * 1e6)
        expect(chosen.memorySlots * slotBytes).toBeLessThanOrEqual(memoryMb * 1e6)
        expect(chosen.gpuSlots + chosen.memorySlots + chosen.diskExperts).toBeGreaterThanOrEqual(experts)
        expect(plan(gpuMb * 1e6 + GB, memoryMb * 1e6).gpuSlots).toBeGreaterThanOrEqual(chosen.gpuSlots)
      }),
    )
  })
})

describe('a GPU that shares the memory of the machine', () => {
  const shared = (bytes: number, expertMemory?: number) =>
    planSharedGpu({ model, memory: facts(bytes), programBytes: 0.1 * GB, expertMemory })

  test('takes a share of what is free, for both', () => {
    const { gpuSlots, memorySlots, diskExperts, fixedBytes } = shared(12 * GB)
    expect(fixedBytes + gpuSlots * slotBytes).toBeLessThan(0.85 * 12 * GB)
    expect(gpuSlots).toBeGreaterThan(experts / 4)
    expect(memorySlots).toBe(0)
    expect(gpuSlots + diskExperts).toBe(experts)
    expect(shared(64 * GB)).toMatchObject({ gpuSlots: experts, diskExperts: 0 })
  })

  test('takes what it is told to, and says where nothing fits', () => {
    expect(shared(12 * GB, GB).gpuSlots).toBeLessThanOrEqual(GB / slotBytes)
    expect(() => shared(1 * GB)).toThrow(MemoryPlanError)
    expect(() => shared(12 * GB, 5)).toThrow(OptionError)
  })
})
