// Frames of the engine on every backend: what they tell equals what evaluations and counters tell.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import type { EngineFrame } from '#moeflux/engine/engineFrame.js'
import { stateBackends } from '../support/backends.js'
import { packTiny } from '../support/models/models.js'

describe.each(stateBackends)('watching $name', backend => {
  let model: Model
  beforeAll(async () => {
    model = await openModel(await packTiny(), { ...backend.options, prefetch: false })
  })
  afterAll(() => model.close())

  test('frames add up to the routing, the tokens and the experts in memory', async () => {
    const { numLayers, numExperts } = model.config
    const frames: EngineFrame[] = []
    const stop = model.watch(frame => frames.push(frame))
    const context = model.createContext()
    const { routing } = await context.evaluate([1, 2, 3, 4, 5, 6, 7], { routing: true })
    await context.evalToken(8)
    await context.evalToken(9)
    await until(() => frames.some(({ decodeTokens }) => decodeTokens > 0) && frames.at(-1)?.phase === 'idle')
    stop()

    const sum = (read: (frame: EngineFrame) => number) => frames.reduce((total, frame) => total + read(frame), 0)
    expect(sum(frame => frame.promptTokens)).toBe(7)
    expect(sum(frame => frame.decodeTokens)).toBe(2)
    const routed = Array.from({ length: numLayers * numExperts }, (_, cell) => sum(frame => frame.routed[cell]))
    const k = model.expertsPerToken
    for (let layer = 0; layer < numLayers; layer++) {
      const ofLayer = routed.slice(layer * numExperts, (layer + 1) * numExperts)
      expect(ofLayer.reduce((total, count) => total + count)).toBe(9 * k)
      for (const { experts, tokens } of routing) {
        for (const expert of experts.subarray(layer * tokens * k, (layer + 1) * tokens * k)) {
          expect(ofLayer[expert]).toBeGreaterThan(0)
        }
      }
    }
    const last = frames.at(-1) as EngineFrame
    const inMemory = last.resident.reduce((total, bit) => total + bit, 0)
    expect(inMemory).toBe(last.stats.expertSlotsUsed)
    expect(inMemory).toBeGreaterThanOrEqual(k * numLayers)
    expect(sum(frame => frame.bytesRead)).toBe(last.stats.bytesRead)
    expect(last.stats).toEqual(model.stats())
  })
})

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('it never came')
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}
