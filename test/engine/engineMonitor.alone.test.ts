// Frames of the engine over a backend of which only the counters matter.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Backend, StepRun } from '#moeflux/backends/backend.js'
import type { ModelStats } from '#moeflux/backends/stats.js'
import type { EngineFrame } from '#moeflux/engine/engineFrame.js'
import { EngineMonitor } from '#moeflux/engine/engineMonitor.js'

const LAYERS = 2
const EXPERTS = 4
const K = 2

function setUp() {
  const stats = { computeSeconds: 0, stallSeconds: 0, bytesRead: 0, phaseSeconds: { mixer: 1, experts: 2 } }
  const resident = new Uint8Array(LAYERS * EXPERTS)
  let asked = 0
  const backend = {
    config: { moeLayers: Array.from({ length: LAYERS }, (_, layer) => layer), numExperts: EXPERTS },
    stats: () => {
      asked++
      return structuredClone(stats) as unknown as ModelStats
    },
    residency: () => resident.slice(),
  } as unknown as Backend
  const monitor = new EngineMonitor(backend, K)
  /** A step of one run, every token routed alike. */
  const step = (phase: StepRun['phase'], tokens: number, picks: readonly number[][]) => {
    const routing = Uint16Array.from(picks.flatMap(pick => Array.from({ length: tokens }, () => pick).flat()))
    const run = { phase, tokens: Array.from({ length: tokens }, () => 7) } as unknown as StepRun
    monitor.stepDone([run], [{ logits: null, argmax: null, kept: tokens, routing }])
  }
  return { stats, resident, monitor, step, asked: () => asked }
}

describe('engine monitor', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] }))
  afterEach(() => void vi.useRealTimers())

  test('asks nothing of the backend while nobody watches', () => {
    const { monitor, asked } = setUp()
    expect(monitor.isWatched).toBe(false)
    const stop = monitor.watch(() => {})
    expect(monitor.isWatched).toBe(true)
    stop()
    const before = asked()
    vi.advanceTimersByTime(5000)
    expect(monitor.isWatched).toBe(false)
    expect(asked()).toBe(before)
  })

  test('tells how things stand at once, then merges steps into at most ten frames a second', () => {
    const { stats, resident, monitor, step } = setUp()
    const frames: EngineFrame[] = []
    monitor.watch(frame => frames.push(frame))
    vi.advanceTimersByTime(1)
    expect(frames).toHaveLength(1)
    expect(frames[0]).toMatchObject({ sequence: 1, phase: 'idle', promptTokens: 0, decodeTokens: 0 })

    resident[5] = 1
    stats.phaseSeconds.mixer += 0.25
    stats.stallSeconds += 0.5
    stats.computeSeconds += 0.125
    stats.bytesRead += 1000
    step('prompt', 3, [
      [0, 1],
      [2, 3],
    ])
    for (let i = 0; i < 20; i++) {
      step('decode', 1, [
        [0, 2],
        [3, 1],
      ])
      vi.advanceTimersByTime(4)
    }
    vi.advanceTimersByTime(100)
    expect(frames).toHaveLength(2)
    const [, frame] = frames
    expect(frame).toMatchObject({ sequence: 2, phase: 'mixed', promptTokens: 3, decodeTokens: 20, stallSeconds: 0.5 })
    expect([...frame.routed]).toEqual([23, 3, 20, 0, 0, 20, 3, 23])
    expect([...frame.resident]).toEqual([0, 0, 0, 0, 0, 1, 0, 0])
    expect(frame.phaseSeconds).toEqual({ mixer: 0.25, experts: 0 })
    expect(frame.bytesRead).toBe(1000)
    expect(frame.busySeconds).toBe(0.625)

    // Half a second of silence is told once.
    vi.advanceTimersByTime(5000)
    expect(frames.map(({ phase }) => phase)).toEqual(['idle', 'mixed', 'idle'])
    expect([...frames[2].routed]).toEqual(new Array(LAYERS * EXPERTS).fill(0))
  })

  test('counts for every watcher from when the first one came, and forgets when the last one goes', () => {
    const { monitor, step } = setUp()
    const one: EngineFrame[] = []
    const two: EngineFrame[] = []
    const stopOne = monitor.watch(frame => one.push(frame))
    vi.advanceTimersByTime(1)
    const stopTwo = monitor.watch(frame => two.push(frame))
    vi.advanceTimersByTime(1)
    expect(two).toHaveLength(1)
    step('decode', 1, [
      [0, 1],
      [0, 1],
    ])
    vi.advanceTimersByTime(200)
    expect(one.at(-1)).toEqual(two.at(-1))
    stopOne()
    stopOne()
    expect(monitor.isWatched).toBe(true)
    stopTwo()
    step('decode', 1, [[], []])
    const three: EngineFrame[] = []
    monitor.watch(frame => three.push(frame))
    vi.advanceTimersByTime(1)
    expect(three[0].decodeTokens).toBe(0)
    monitor.close()
    vi.advanceTimersByTime(1000)
    expect(three).toHaveLength(1)
  })
})
