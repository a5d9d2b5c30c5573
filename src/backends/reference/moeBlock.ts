// The MoE block of one layer: router, shared expert, and the routed experts, each applied once to all its tokens.
import { addBias, sigmoid } from '../../ops/activation/reference.js'
import { matVec } from '../../ops/matmul/reference.js'
import { combine, expert } from '../../ops/moe/reference.js'
import { router } from '../../ops/router/reference.js'
import type { FeedForwardProbe, LayerContext } from './layerRun.js'
import type { MoeWeights } from './model.js'

const NONE = new Float32Array(0)

/** normed [tokens, hidden] */
export async function moeBlock(
  weights: MoeWeights,
  normed: Float32Array,
  context: LayerContext,
): Promise<FeedForwardProbe> {
  const { config, expertsPerToken } = context
  const { shape, shared } = weights
  const routerLogits = addBias(matVec(weights.router, normed), weights.routerBias)
  const routing = router(routerLogits, config.numExperts, expertsPerToken, shape.router, weights.selectionBias)
  await context.phase('router')

  const sharedGate = shared?.gate ? matVec(shared.gate, normed).map(sigmoid) : null
  const sharedOut = shared && expert(shared.expert, normed, shape.activation)
  const routed = await routedExperts(weights, normed, routing.indices, context)
  const tokens = normed.length / config.hiddenSize
  return {
    routerLogits,
    routerIndices: routing.indices,
    routerWeights: routing.weights,
    sharedOut: sharedOut ?? NONE,
    sharedGate: sharedGate ?? NONE,
    mlpOut: combine(routed, routing.weights, sharedOut, sharedGate, tokens),
  }
}

/** indices [tokens, K] -> [tokens, K, hidden] */
async function routedExperts(
  { shape }: MoeWeights,
  normed: Float32Array,
  indices: Int32Array,
  context: LayerContext,
): Promise<Float32Array> {
  const { hiddenSize } = context.config
  const k = context.expertsPerToken
  const placesOf = new Map<number, number[]>() // expert -> places in `indices`
  indices.forEach((index, place) => {
    const places = placesOf.get(index)
    if (places) places.push(place)
    else placesOf.set(index, [place])
  })
  const routed = new Float32Array(indices.length * hiddenSize)
  const wanted = [...placesOf.keys()].sort((a, b) => a - b)
  for await (const [index, weights] of context.takeExperts(wanted)) {
    const places = placesOf.get(index) as number[]
    const x = new Float32Array(places.length * hiddenSize)
    places.forEach((place, i) => {
      const row = Math.floor(place / k)
      x.set(normed.subarray(row * hiddenSize, (row + 1) * hiddenSize), i * hiddenSize)
    })
    const y = expert(weights, x, shape.activation)
    places.forEach((place, i) => {
      routed.set(y.subarray(i * hiddenSize, (i + 1) * hiddenSize), place * hiddenSize)
    })
    await context.phase('experts')
  }
  return routed
}
