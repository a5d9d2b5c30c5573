// Aborts and failed reads at places of steps through layers of other kinds, as in positions.test.ts: a dense model, which
// reads nothing while it computes, one whose first layer is dense, and one with windows, sinks and biases.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LayerShape } from '#moeflux/model/layers.js'
import { type FaultModel, faultModel } from '../../support/faults/faultBackends.js'
import { faultShape } from '../../support/faults/faultShape.js'
import { denseKinds, glmKinds, gptOssKinds } from '../../support/ops/kindShapes.js'
import { openGatedModel } from '../../support/wasm/gatedWasm.js'
import { type GatedWasm, StepPositions } from '../../support/wasm/stepPositions.js'

const models: [name: string, kinds: readonly LayerShape[]][] = [
  ['a dense model', denseKinds],
  ['a dense layer first', glmKinds],
  ['windows, sinks and biases', gptOssKinds],
]

describe.each(models)('%s', (_, kinds) => {
  const layers = kinds.map(({ mixer }) => mixer.kind)
  const hasExperts = kinds.some(({ feedForward }) => feedForward.kind === 'moe')
  let model: FaultModel
  let opened: GatedWasm
  beforeAll(async () => {
    model = await faultModel({ ...faultShape, vocab: 160, layers, kinds })
    opened = await openGatedModel(model.packed, 2)
  })
  afterAll(async () => {
    await opened.close()
    await model.close()
  })

  test.each([
    [0, 7],
    [1, 3],
  ])('worker %i, an abort at every so many places', async (worker, stride) => {
    const { places, aborted } = await (await StepPositions.on(opened, stride)).abortEverywhere(worker)
    expect(places).toBeGreaterThan(30)
    expect(aborted * stride).toBeGreaterThan(places / 2)
  })

  test('a disk that fails from a place on', async () => {
    const stride = 5
    const { places, failed } = await (await StepPositions.on(opened, stride)).failReads('meet')
    if (hasExperts) expect(3 * failed * stride).toBeGreaterThan(places / 2)
    else expect(failed).toBe(0)
  })
})
