// Log probabilities of held-out text on every backend, against the reference values of both models.
import { describe, expect, test } from 'vitest'
import { type Model, openModel } from '#moeflux/session/openModel.js'
import { type BackendRow, backends } from '../support/backends.js'
import { expectClose } from '../support/bands.js'
import { Goldens } from '../support/goldens.js'
import { demoModel, packTiny } from '../support/models.js'

const models = [
  { name: 'demo', folder: async () => demoModel },
  { name: 'tiny', folder: () => packTiny() },
] as const

// On slow backends the logits of every position are compared with the goldens already; what is left is int8's own loss.
const cases = backends
  .filter(({ isSlow, sameTokens }) => !isSlow || !sameTokens)
  .flatMap(backend => models.map(model => ({ backend, model })))

describe.each(cases)('$model.name on $backend.name', ({ backend, model: source }) => {
  test('log probabilities and perplexity', { timeout: 600_000 }, async () => {
    const goldens = new Goldens(source.name)
    const allWant = goldens.floats('nll.token_logprobs') // [rows, length - 1]
    const allIds = goldens.ints('nll.input_ids') // [rows, length]
    const rows = allIds.length - allWant.length
    const length = allIds.length / rows
    const model = await openModel(await source.folder(), backend.options)
    const got: number[] = []
    const want: number[] = []
    for (const [row, seen] of lengthsSeen(backend, rows, length).entries()) {
      got.push(...(await tokenLogprobs(model, [...allIds.subarray(row * length, row * length + seen)])))
      want.push(...allWant.subarray(row * (length - 1), row * (length - 1) + seen - 1))
    }
    await model.close()
    expect(got.length).toBe(want.length)
    if (backend.sameTokens) expectClose(got, want, backend.logits, 'log probabilities')
    expect(Math.abs(perplexity(got) / perplexity(want) - 1)).toBeLessThan(backend.perplexity)
  })
})

/**
 * Tokens of each text that a backend sees from its beginning: probabilities there do not depend on what follows. An emulated
 * GPU sees little, and plain JavaScript the beginning of each text.
 */
function lengthsSeen({ isSlow, name }: BackendRow, rows: number, length: number): number[] {
  if (isSlow) return [40]
  return new Array<number>(rows).fill(name === 'reference' ? Math.min(128, length) : length)
}

async function tokenLogprobs(model: Model, ids: readonly number[]): Promise<number[]> {
  const context = model.createContext()
  const { vocabSize } = model
  const out: number[] = []
  await context.evaluate(ids, {
    logits: 'all',
    onLogits: (start, logits) => {
      for (let i = 0; i < logits.length / vocabSize; i++) {
        const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize)
        const next = ids[start + i + 1]
        if (next !== undefined) out.push(row[next] - logSumExp(row))
      }
    },
  })
  await context.close()
  return out
}

function logSumExp(row: Float32Array): number {
  const max = row.reduce((a, b) => Math.max(a, b))
  return max + Math.log(row.reduce((sum, value) => sum + Math.exp(value - max), 0))
}

function perplexity(logprobs: readonly number[]): number {
  return Math.exp(-logprobs.reduce((a, b) => a + b, 0) / logprobs.length)
}
