// Every backend against the reference values of both models: each tensor of every layer, states, logits, greedy text, log
// probabilities of held-out text. (The check.* rows are looked at where packing is tested.)
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LayerState, ProbeResult } from '#moeflux/backends/backend.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import { decodeLayers } from '#moeflux/engine/snapshot.js'
import { type BackendRow, backends } from '../support/backends.js'
import { Goldens } from '../support/models/goldens.js'
import { demoModel, packTiny } from '../support/models/models.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { perplexity, tokenLogprobs } from '../support/ops/tokenLogprobs.js'

const models = [
  { name: 'demo', goldens: 'demo', prompts: 3, folder: async () => demoModel },
  { name: 'tiny', goldens: 'tiny', prompts: 1, folder: () => packTiny('separate') },
  { name: 'tiny, fused layout', goldens: 'tiny', prompts: 1, folder: () => packTiny('fused') },
] as const

// Slow backends see the first prompt of each model, in one of its layouts.
const cases = backends.flatMap(backend =>
  models.filter(model => !backend.isSlow || !model.name.includes('fused')).map(model => ({ backend, model })),
)

describe.each(cases)('$model.name on $backend.name', ({ backend, model: source }) => {
  const goldens = new Goldens(source.goldens)
  const seen = new Set<string>()
  const floats = (name: string) => {
    seen.add(name)
    return goldens.floats(name)
  }
  const ints = (name: string) => {
    seen.add(name)
    return goldens.ints(name)
  }
  let model: Model

  beforeAll(async () => {
    model = await openModel(await source.folder(), backend.options)
  })
  afterAll(() => model.close())

  describe('inside prompt 0', () => {
    let probe: ProbeResult
    let states: LayerState[]
    beforeAll(async () => {
      const context = model.createContext()
      const ids = [...ints('p0.input_ids')]
      probe = await context.probe({ tokens: ids })
      expect(context.length, 'a probe changes nothing').toBe(0)
      await context.evalPrompt(ids)
      states = [...decodeLayers(await context.saveState(), model.config)]
      await context.close()
    })

    test('embedding rows to the bit; final norm; logits at all positions', () => {
      expectSameBits(probe.embed as Float32Array, floats('p0.embed'))
      expectClose(probe.finalNorm as Float32Array, floats('p0.final_norm'), backend.layers, 'final norm')
      expectClose(probe.logits as Float32Array, floats('p0.logits'), backend.logits, 'logits')
    })

    test('each layer: mixer, router, experts, output', () => {
      expect(probe.layers.map(({ layer }) => layer)).toEqual([...model.config.layerKinds.keys()])
      for (const layer of probe.layers) {
        const golden = (name: string) => `p0.layer.${layer.layer}.${name}`
        const close = (name: string, got: Float32Array) =>
          expectClose(got, floats(golden(name)), backend.layers, golden(name))
        close('mixer_out', layer.mixerOut)
        close('router_logits', layer.routerLogits)
        close('mlp_out', layer.mlpOut)
        close('out', layer.out)
        const picks = ints(golden('router_indices'))
        const weights = floats(golden('router_weights'))
        if (backend.sameTokens) {
          expect([...layer.routerIndices], golden('router_indices')).toEqual([...picks])
          expectClose(layer.routerWeights, weights, backend.layers, golden('router_weights'))
        }
      }
    })

    test('state after the prompt: convolution, recurrence, keys and values', () => {
      const { numKvHeads, headDim, linearValueHeads, linearValueDim, linearKeyDim, linearConvDim } = model.config
      expect(states.length).toBe(model.config.numLayers)
      states.forEach((state, i) => {
        const close = (name: string, got: Float32Array, shape: readonly number[], order: readonly number[]) => {
          const golden = `p0.layer.${i}.${name}`
          expectClose(got, permute(floats(golden), shape, order), backend.layers, golden)
        }
        if (state.kind === 'linear_attention') {
          close('conv_state', state.conv, [linearConvDim, 3], [1, 0])
          close('recurrent_state', state.recurrent, [linearValueHeads, linearKeyDim, linearValueDim], [0, 2, 1])
        } else {
          const length = state.keys.length / (numKvHeads * headDim)
          close('k_cache', state.keys, [numKvHeads, length, headDim], [1, 0, 2])
          close('v_cache', state.values, [numKvHeads, length, headDim], [1, 0, 2])
        }
      })
    })

    test('one layer alone, from a given hidden state', async () => {
      const context = model.createContext()
      const layer = model.config.numLayers - 1
      const hidden = floats(`p0.layer.${layer - 1}.out`)
      const { layers } = await context.probe({ layer, hidden })
      expectClose(layers[0].out, floats(`p0.layer.${layer}.out`), backend.layers, 'the last layer')
      await context.close()
    })
  })

  const prompts = Array.from({ length: backend.isSlow ? 1 : source.prompts }, (_, j) => j)
  test.each(prompts)('prompt %i: logits, argmax, greedy', { timeout: 240_000 }, async j => {
    const ids = [...ints(`p${j}.input_ids`)]
    const context = model.createContext()
    const { logits } = await context.evaluate(ids, { logits: 'all' })
    const rows = splitRows(logits as Float32Array, model.vocabSize)
    const last = rows.at(-1) as Float32Array
    expectClose(last, floats(`p${j}.last_logits`), backend.logits, 'last logits')
    const argmax = [...ints(`p${j}.argmax`)]
    const greedy = [...ints(`p${j}.greedy`)].slice(0, backend.isSlow ? 6 : undefined)
    if (backend.sameTokens) {
      expect(rows.map(best)).toEqual(argmax)
      const tokens = [best(last)]
      while (tokens.length < greedy.length) tokens.push(await context.evalTokenGreedy(tokens.at(-1) as number))
      expect(tokens).toEqual(greedy)
    }
    await context.close()
  })

  // On slow backends the logits of every position are compared already; what is left is int8's own loss. No layout has text of its own.
  const hasText = (!backend.isSlow || !backend.sameTokens) && !source.name.includes('fused')
  const compareText = async () => {
    const allWant = floats('nll.token_logprobs') // [rows, length - 1]
    const allIds = ints('nll.input_ids') // [rows, length]
    const rows = allIds.length - allWant.length
    const length = allIds.length / rows
    const got: number[] = []
    const want: number[] = []
    for (const [row, tokens] of lengthsSeen(backend, rows, length).entries()) {
      got.push(...(await tokenLogprobs(model, [...allIds.subarray(row * length, row * length + tokens)])))
      want.push(...allWant.subarray(row * (length - 1), row * (length - 1) + tokens - 1))
    }
    expect(got.length).toBe(want.length)
    if (backend.sameTokens) expectClose(got, want, backend.logits, 'log probabilities')
    expect(Math.abs(perplexity(got) / perplexity(want) - 1)).toBeLessThan(backend.perplexity)
  }
  if (hasText) test('log probabilities and perplexity of held-out text', { timeout: 600_000 }, compareText)

  test('nothing in the golden file was left out', () => {
    const left = new RegExp(`^(check${hasText ? '' : '|nll'}${backend.isSlow ? '|p[1-9]' : ''})\\.`)
    const unseen = goldens.names.filter(name => !seen.has(name) && !left.test(name))
    expect(unseen).toEqual([])
  })
})

/**
 * Tokens of each text that a backend sees from its beginning: probabilities there do not depend on what follows. One text is seen to
 * its end, plain JavaScript sees a little more than a chunk of each, and an emulated GPU little.
 */
function lengthsSeen({ isSlow, name }: BackendRow, rows: number, length: number): number[] {
  if (isSlow) return [40]
  const most = Math.min(name === 'reference' ? 70 : 256, length)
  return Array.from({ length: rows }, (_, row) => (row === 0 && name !== 'reference' ? length : most))
}

function best(row: Float32Array): number {
  return row.indexOf(row.reduce((a, b) => Math.max(a, b)))
}

function splitRows(values: Float32Array, size: number): Float32Array[] {
  return Array.from({ length: values.length / size }, (_, i) => values.subarray(i * size, (i + 1) * size))
}

/** Axis i of the result is axis order[i] of `values`. */
function permute(values: Float32Array, shape: readonly number[], order: readonly number[]): Float32Array {
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1))
  const outShape = order.map(axis => shape[axis])
  const out = new Float32Array(values.length)
  for (let i = 0; i < out.length; i++) {
    let rest = i
    let from = 0
    for (let axis = outShape.length - 1; axis >= 0; axis--) {
      from += (rest % outShape[axis]) * strides[order[axis]]
      rest = Math.floor(rest / outShape[axis])
    }
    out[i] = values[from]
  }
  return out
}
