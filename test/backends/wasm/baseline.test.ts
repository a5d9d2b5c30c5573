// The baseline SIMD build against the goldens of both models. (The build that a machine picks by itself is compared in
// the tests of models with everything else; on most machines that is the relaxed one.)
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { joinFloats } from '#moeflux/model/floats.js'
import { Goldens } from '../../support/models/goldens.js'
import { demoModel, packTiny } from '../../support/models/models.js'
import { EXACT_LOGITS, expectClose, FAST_LOGITS } from '../../support/ops/bands.js'
import { type OpenedWasm, openOnWasm } from '../../support/wasm/wasmModels.js'

const models = [
  { name: 'demo', folder: async () => demoModel },
  { name: 'tiny', folder: () => packTiny() },
] as const
const cases = models.flatMap(model => (['exact', 'fast'] as const).map(precision => ({ model, precision })))

describe.each(cases)('$model.name, $precision, baseline SIMD', ({ model, precision }) => {
  const goldens = new Goldens(model.name)
  let opened: OpenedWasm
  beforeAll(async () => {
    opened = await openOnWasm(await model.folder(), { precision }, { simd: 'baseline' })
  })
  afterAll(() => opened.close())

  async function allLogits(ids: readonly number[]): Promise<Float32Array> {
    const { backend } = opened
    const sequence = backend.createSequence()
    const rows: Float32Array[] = []
    for (let at = 0; at < ids.length; at += backend.chunkTokens) {
      const tokens = ids.slice(at, at + backend.chunkTokens)
      const [output] = await backend.step([{ sequence, tokens, phase: 'prompt', output: 'all' }])
      rows.push(output.logits as Float32Array)
    }
    sequence.release()
    return joinFloats(rows)
  }

  test('says which build it is', () => {
    expect(opened.backend.description).toContain('baseline')
  })

  test('logits at all positions of a prompt', async () => {
    const logits = await allLogits([...goldens.ints('p0.input_ids')])
    expectClose(logits, goldens.floats('p0.logits'), precision === 'exact' ? EXACT_LOGITS : FAST_LOGITS, 'logits')
    if (precision === 'exact') {
      const { vocabSize } = opened.backend.config
      const best = Array.from({ length: logits.length / vocabSize }, (_, i) => {
        const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize)
        return row.indexOf(row.reduce((a, b) => Math.max(a, b)))
      })
      expect(best).toEqual([...goldens.ints('p0.argmax')])
    }
  })

  test('perplexity of held-out text', async () => {
    const want = goldens.floats('nll.token_logprobs')
    const ids = goldens.ints('nll.input_ids')
    const length = ids.length / (ids.length - want.length)
    const row = [...ids.subarray(0, length)]
    const logits = await allLogits(row)
    const { vocabSize } = opened.backend.config
    let sum = 0
    for (let i = 0; i + 1 < length; i++) {
      const scores = logits.subarray(i * vocabSize, (i + 1) * vocabSize)
      const max = scores.reduce((a, b) => Math.max(a, b))
      sum += scores[row[i + 1]] - max - Math.log(scores.reduce((total, value) => total + Math.exp(value - max), 0))
    }
    const golden = want.subarray(0, length - 1).reduce((a, b) => a + b, 0)
    const ratio = Math.exp((golden - sum) / (length - 1))
    expect(Math.abs(ratio - 1)).toBeLessThan(precision === 'exact' ? 0.001 : 0.01)
  })
})
