// Every family on every backend against the reference values of another implementation: the residual stream after each
// layer, router picks and weights, state, logits, greedy text. Weights are kept as the checkpoints have them.
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { LayerProbe, LayerState, ProbeResult } from '#moeflux/backends/backend.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import type { Context } from '#moeflux/engine/context.js'
import { decodeLayers } from '#moeflux/engine/snapshot.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { type BackendRow, backends } from '../support/backends.js'
import { FamilyGoldens, type FamilyName, familyNames, keptWeights, writeFamily } from '../support/models/families.js'
import { expectClose } from '../support/ops/bands.js'
import { folderOfThisFile } from '../support/temporaryFolders.js'

/** Largest differences from the reference values for arithmetic in float32. */
const EXACT = { values: 1e-3, weights: 1e-4, states: 1e-4 }

const cases = backends
  .flatMap(backend => familyNames.map(family => ({ backend, family })))
  // int8 activations meet quantized weights alone: with floats an emulated GPU would compute the same again.
  .filter(({ backend, family }) => !backend.isSlow || backend.sameTokens || keptWeights(family).bits === undefined)

const packed = new Map<FamilyName, Promise<string>>() // once for all backends

function packFamily(family: FamilyName): Promise<string> {
  const known = packed.get(family)
  if (known !== undefined) return known
  const pack = async () => {
    const folder = folderOfThisFile('family')
    const target = join(folder, 'packed')
    await packFolder(writeFamily(family, join(folder, 'source')), target, keptWeights(family))
    return target
  }
  const packing = pack()
  packed.set(family, packing)
  return packing
}

describe.each(cases)('$family on $backend.name', ({ backend, family }) => {
  const goldens = new FamilyGoldens(family)
  const ids = goldens.ints('ids')
  let model: Model
  let probe: ProbeResult
  let states: LayerState[]
  let context: Context // after the prompt
  let last: Float32Array

  beforeAll(async () => {
    model = await openModel(await packFamily(family), backend.options)
    context = model.createContext()
    probe = await context.probe({ tokens: ids })
    last = (await context.evalPrompt(ids)) as Float32Array
    states = [...decodeLayers(await context.saveState(), model.config)]
  })
  afterAll(() => model?.close())

  test('the residual stream after each layer, and the logits', () => {
    const rows = goldens.ints('rows')
    const hidden = probe.layers.flatMap(({ out }) => rowsOf(out, ids.length, rows))
    compare(backend, hidden, goldens.floats('hidden'), EXACT.values, 'hidden')
    compare(backend, rowsOf(probe.logits!, ids.length, rows), goldens.floats('logits'), EXACT.values, 'logits')
  })

  test('router: the same experts, with their weights', () => {
    const routed = probe.layers.filter(({ routerIndices }) => routerIndices.length > 0)
    expect(routed.map(({ layer }) => layer)).toEqual(model.config.moeLayers)
    for (const layer of routed) {
      const picks = goldens.ints(`layer.${layer.layer}.router_indices`)
      const weights = goldens.floats(`layer.${layer.layer}.router_weights`)
      const want = weightsByExpert(picks, weights, model.config.numExperts, ids.length)
      const got = byExpert(layer, model.config.numExperts, ids.length)
      compare(backend, got, want, EXACT.weights, `router of layer ${layer.layer}`)
    }
  })

  test('state of the delta nets', () => {
    const { linearConvDim, linearValueHeads, linearKeyDim, linearValueDim } = model.config
    for (const [layer, state] of states.entries()) {
      const name = `layer.${layer}.recurrent_state`
      if (state.kind !== 'linear_attention' || !goldens.has(name)) continue
      const conv = transpose(goldens.floats(`layer.${layer}.conv_state`), 1, linearConvDim, 3)
      const recurrent = transpose(goldens.floats(name), linearValueHeads, linearKeyDim, linearValueDim)
      compare(backend, state.conv, conv, EXACT.states, `convolution of layer ${layer}`)
      compare(backend, state.recurrent, recurrent, EXACT.states, name)
    }
  })

  test('greedy text, token by token', async () => {
    const greedy = goldens.ints('greedy').slice(0, backend.isSlow ? 6 : undefined)
    const tokens = [best(last)]
    while (tokens.length < greedy.length) tokens.push(await context.evalTokenGreedy(tokens.at(-1) as number))
    if (backend.sameTokens) expect(tokens).toEqual(greedy)
  })
})

function compare(
  backend: BackendRow,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  largest: number,
  what: string,
): void {
  if (!backend.sameTokens) {
    expectClose(got, want, backend.layers, what)
    return
  }
  expect(got.length, `${what}: length`).toBe(want.length)
  let worst = 0
  for (let i = 0; i < want.length; i++) worst = Math.max(worst, Math.abs(got[i] - want[i]))
  expect(worst, `${what}: largest difference`).toBeLessThanOrEqual(largest)
}

function rowsOf(values: Float32Array, count: number, rows: readonly number[]): number[] {
  const width = values.length / count
  return rows.flatMap(row => [...values.subarray(row * width, (row + 1) * width)])
}

/** [tokens, experts]: weights where they were picked, else 0. */
function byExpert({ routerIndices, routerWeights }: LayerProbe, experts: number, tokens: number): Float32Array {
  return weightsByExpert([...routerIndices], routerWeights, experts, tokens)
}

function weightsByExpert(picks: readonly number[], weights: Float32Array, experts: number, tokens: number) {
  const out = new Float32Array(tokens * experts)
  const k = picks.length / tokens
  for (const [i, expert] of picks.entries()) out[Math.floor(i / k) * experts + expert] = weights[i]
  return out
}

/** [count, rows, cols] -> [count, cols, rows] */
function transpose(values: Float32Array, count: number, rows: number, cols: number): Float32Array {
  const out = new Float32Array(values.length)
  for (let n = 0; n < count; n++) {
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        out[(n * cols + col) * rows + row] = values[(n * rows + row) * cols + col]
      }
    }
  }
  return out
}

function best(row: Float32Array): number {
  return row.indexOf(row.reduce((a, b) => Math.max(a, b)))
}
