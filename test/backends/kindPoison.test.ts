// NaN and infinity in what other kinds of layers have beside matrices (biases, sinks, biases of the choice): a step that
// reads them fails, whatever clamps, choices and softmaxes lie on the way.
import { describe, expect, test } from 'vitest'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { ByteSource } from '#moeflux/files/source.js'
import type { LayerShape } from '#moeflux/model/layers.js'
import { layerVectors } from '#moeflux/model/tensorParts.js'
import { faultShape } from '../support/faults/faultShape.js'
import { memorySource } from '../support/faults/memoryFiles.js'
import { randomModel } from '../support/models/randomModel.js'
import { glmKinds, gptOssKinds } from '../support/ops/kindShapes.js'
import { localHost } from '../support/wasm/wasmHosts.js'

const tokens = [3, 14, 15, 9, 26, 5]

const backends = {
  reference: openReferenceBackend,
  wasm: (packed: PackedModel, options: Parameters<typeof openReferenceBackend>[1]) =>
    openWasmBackend(packed, { ...options, wasmHost: localHost }),
}

/** How a prompt of the model ends: 'fine', or the code of its error. */
async function ending(packed: PackedModel, name: keyof typeof backends): Promise<string> {
  const { expertsPerToken } = packed.config
  const backend = await backends[name](packed, { precision: 'exact', expertsPerToken })
  try {
    const sequence = backend.createSequence()
    await backend.step([{ sequence, tokens, phase: 'prompt', output: 'last' }])
    return 'fine'
  } catch (error) {
    return (error as { code: string }).code
  } finally {
    await backend.close()
  }
}

/** The source with one float of another value at each of the places. */
async function changed(source: ByteSource, places: readonly number[], value: number): Promise<ByteSource> {
  const bytes = new Uint8Array(source.size)
  await source.read(0, bytes)
  const view = new DataView(bytes.buffer)
  for (const place of places) view.setFloat32(place, value, true)
  return memorySource(bytes, source.name)
}

describe.each<keyof typeof backends>(['reference', 'wasm'])('%s', backend => {
  test.each<[string, readonly LayerShape[]]>([
    ['sigmoid router', glmKinds],
    ['biases everywhere', gptOssKinds],
  ])('%s: no value of a bias, a sink or a choice is lost when it is not finite', async (_, kinds) => {
    const layers = kinds.map(({ mixer }) => mixer.kind)
    const packed = { ...randomModel({ ...faultShape, layers, kinds }) }
    expect(await ending(packed, backend)).toBe('fine')
    const layer = packed.tensors.layers[kinds.length - 1]
    const vectors = layerVectors(layer).filter(({ name }) => /bias|sinks/.test(name))
    expect(vectors.length).toBeGreaterThan(3)
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      for (const { name, data, length } of vectors) {
        const weights = await changed(packed.weights, [data.offset + (length >> 1) * 4], value)
        expect(await ending({ ...packed, weights }, backend), `${value} in ${name}`).toBe('NON_FINITE_OUTPUT')
      }
    }
  })

  test('biases of experts', async () => {
    const layers = gptOssKinds.map(({ mixer }) => mixer.kind)
    const packed = randomModel({ ...faultShape, layers, kinds: gptOssKinds })
    const { layout } = packed.experts
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      for (const bias of [layout.gateBias, layout.upBias, layout.downBias]) {
        const at = (bias?.data.offset as number) + 8
        const places = Array.from({ length: packed.config.numExperts }, (_, e) => e * layout.expertSize + at)
        const files = await Promise.all(packed.experts.files.map(file => changed(file, places, value)))
        const experts = { ...packed.experts, files, checksums: null }
        expect(await ending({ ...packed, experts }, backend), `${value} in ${bias?.name}`).toBe('NON_FINITE_OUTPUT')
      }
    }
  })
})
