// The head for drafts and steps that check guesses, on every backend that has them: against the reference values, and against
// the same tokens evaluated one by one.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, GuessedRows, SequenceState } from '#moeflux/compute/backend.js'
import { openReferenceBackend } from '#moeflux/compute/reference/referenceBackend.js'
import { expectClose, expectSameBits, KERNEL } from '../support/bands.js'
import { type DraftRow, goldenRows, openDraftBackend, stateRows } from '../support/draftBackends.js'
import { Goldens } from '../support/goldens.js'
import { expectSameState, fresh, type Snapshot, snapshot } from '../support/wasmModels.js'

const goldens = new Goldens('mtp')

function drafting(row: DraftRow) {
  let backend: Backend
  let close: () => Promise<void>
  beforeAll(async () => {
    const opened = await openDraftBackend(row)
    backend = opened.backend
    close = opened.close
  })
  afterAll(() => close())
  return {
    get backend() {
      return backend
    },
    async prompt(tokens: readonly number[]): Promise<SequenceState> {
      const sequence = backend.createSequence()
      if (tokens.length > 0) await backend.step([{ sequence, tokens, phase: 'prompt', output: 'none' }])
      return sequence
    },
    async draft(sequence: SequenceState, token: number, count = 3): Promise<readonly number[]> {
      return (await backend.draft!([{ sequence, token, count }]))[0].guesses
    },
    /** Checks guesses behind `token`; keeps those that agree with the model, as greedy decoding does. */
    async check(sequence: SequenceState, token: number, guesses: readonly number[]) {
      let next = -1
      const keep = ({ argmax }: GuessedRows) => {
        let kept = 1
        while (kept <= guesses.length && guesses[kept - 1] === argmax[kept - 1]) kept++
        next = argmax[kept - 1]
        return kept
      }
      const run = { sequence, tokens: [token, ...guesses], phase: 'decode', output: 'argmax', keep } as const
      const [{ kept, argmax }] = await backend.step([run])
      expect(argmax, 'the best token at the last kept one').toBe(next)
      return { kept, next }
    },
  }
}

describe.each(goldenRows)('$name against the reference values', row => {
  const on = drafting(row)

  test('guesses 1 to 3 of chains, keys and values of a prompt, greedy text in rounds of three guesses', async () => {
    const { backend, draft } = on
    for (const j of row.prompts) {
      const ids = [...goldens.ints(`p${j}.input_ids`)]
      const rows = goldens.ints(`p${j}.rows`).subarray(-row.rows)
      const want = goldens.ints(`p${j}.draft_ids`).subarray(-3 * rows.length)
      const sequence = backend.createSequence()
      for (const [i, r] of rows.entries()) {
        const tokens = ids.slice(sequence.length, r + 1)
        await backend.step([{ sequence, tokens, phase: 'prompt', output: 'none' }])
        const logits: Float32Array[] = []
        const choose = (values: Float32Array, index: number) => {
          logits.push(values.slice())
          return want[3 * i + index]
        }
        await backend.draft!([{ sequence, token: ids[r + 1], count: 3, choose }])
        if (row.sameTokens) expect(await draft(sequence, ids[r + 1])).toEqual([...want.subarray(3 * i, 3 * i + 3)])
        if (j > 0) continue
        for (const [index, got] of logits.entries()) {
          const all = goldens.floats(`p0.draft${index + 1}_logits`).subarray(-rows.length * got.length)
          expectClose(got, all.subarray(i * got.length, (i + 1) * got.length), row.band, `guess ${index} at row ${r}`)
        }
      }
      const last = { sequence, tokens: ids.slice(sequence.length), phase: 'prompt', output: 'argmax' } as const
      const [{ argmax }] = await backend.step([last])
      for (const [part, name] of [
        ['keys', 'k_cache'],
        ['values', 'v_cache'],
      ] as const) {
        const got = await sequence.exportRows(backend.config.numLayers, part, 1, ids.length - 1)
        expectClose(got, byRow(goldens.floats(`p${j}.${name}`), backend), row.band, part)
      }
      await expectRounds(sequence, j, argmax as number)
      sequence.release()
    }
  })

  /** Greedy text in rounds of three guesses is the same as one by one. */
  const expectRounds = async (sequence: SequenceState, j: number, first: number) => {
    const { draft, check } = on
    const greedy = [...goldens.ints(`p${j}.greedy`)].slice(0, row.text)
    const wantGuesses = goldens.ints(`p${j}.round_drafts`)
    const wantKept = goldens.ints(`p${j}.round_accepted`)
    const text = [first]
    for (let round = 0; text.length < greedy.length; round++) {
      const guesses = await draft(sequence, text.at(-1)!)
      const { kept, next } = await check(sequence, text.at(-1)!, guesses)
      text.push(...guesses.slice(0, kept - 1), next)
      if (!row.sameTokens || text.length > greedy.length) continue
      expect(guesses).toEqual([...wantGuesses.subarray(3 * round, 3 * round + 3)])
      expect(kept - 1).toBe(wantKept[round])
    }
    if (row.sameTokens) expect(text.slice(0, greedy.length)).toEqual(greedy)
  }
})

describe.each(stateRows)('states, $name', row => {
  const on = drafting(row)
  const sameState = (got: Snapshot, want: Snapshot) => expectSameState(got, want, row.rounding)
  const ids = [17, 3, 40, 22, 58, 9, 31, 44]

  test('rejected guesses leave no trace, in one sequence or several', async () => {
    const { backend, prompt, draft } = on
    const { kept } = row
    const sequences = await Promise.all(kept.map(() => prompt(ids)))
    const tokens = [5, 6, 7, 8]
    await backend.step(
      sequences.map((sequence, i) => ({ sequence, tokens, phase: 'decode', output: 'all', keep: () => kept[i] })),
    )
    for (const [i, sequence] of sequences.entries()) {
      const all = [...ids, ...tokens.slice(0, kept[i])]
      expect(sequence.length).toBe(all.length)
      const guesses = await draft(sequence, 9)
      const one = { sequence, tokens: [9], phase: 'decode', output: 'last' } as const
      const [{ logits }] = await backend.step([one])
      const plain = await prompt(ids)
      for (const token of tokens.slice(0, kept[i])) {
        await backend.step([{ sequence: plain, tokens: [token], phase: 'decode', output: 'none' }])
      }
      expect(await draft(plain, 9), 'the head knows the same').toEqual(guesses)
      const [alone] = await backend.step([{ ...one, sequence: plain }])
      const want = await snapshot(backend, plain, alone.logits!)
      sameState(await snapshot(backend, sequence, logits!), want)
      plain.release()
      sequence.release()
    }
  })

  test('held states bring the head along; an imported one starts it anew', async () => {
    const { backend, prompt, draft, check } = on
    const sequence = await prompt(ids)
    const held = await sequence.hold()
    const guesses = await draft(sequence, 11)
    expect(guesses).toHaveLength(3)
    await check(sequence, 11, [1, 2, 3])
    await sequence.restore(held)
    expect(await draft(sequence, 11)).toEqual(guesses)
    held.release()

    const layers = (await snapshot(backend, sequence, new Float32Array(0))).layers
    await sequence.importLayers(ids.length, layers)
    expect(await draft(sequence, 11), 'nothing is known of the last token').toEqual([])
    await backend.step([{ sequence, tokens: [11, 12, 13], phase: 'prompt', output: 'none' }])
    expect(await draft(sequence, 14)).toHaveLength(3)
    await sequence.clear()
    expect(await draft(sequence, 14)).toEqual([])
    sequence.release()
  })

  test('an aborted step, an aborted draft, and drafting itself change nothing', async () => {
    const { backend, prompt, draft } = on
    const whole = await fresh(backend, ids)
    const sequence = await prompt(ids.slice(0, -1))
    const aborted = { signal: AbortSignal.abort(new Error('enough')) }
    const keep = () => 4
    const guessed = { sequence, tokens: [1, 2, 3, 4], phase: 'decode', output: 'all', keep } as const
    await expect(backend.step([guessed], aborted)).rejects.toThrow('enough')
    await expect(backend.draft!([{ sequence, token: 1, count: 3 }], aborted)).rejects.toThrow('enough')
    await draft(sequence, 3)
    const last = { sequence, tokens: ids.slice(-1), phase: 'prompt', output: 'last' } as const
    const [{ logits }] = await backend.step([last])
    sameState(await snapshot(backend, sequence, logits!), whole)
    sequence.release()
  })

  test('choose sees the logits, and ends the chain', async () => {
    const { backend, prompt } = on
    const sequence = await prompt([1, 2, 3])
    const seen: number[] = []
    const choose = (logits: Float32Array, index: number) => {
      expect(logits.length).toBe(backend.config.vocabSize)
      seen.push(index)
      return index === 1 ? null : 47
    }
    const [{ guesses }] = await backend.draft!([{ sequence, token: 4, count: 3, choose }])
    expect(guesses).toEqual([47])
    expect(seen).toEqual([0, 1])
    sequence.release()
  })
})

test.each(stateRows.filter(({ model }) => model))(
  'the head of a small model guesses as the reference does, $name',
  async row => {
    const chains = await Promise.all(
      [row, { ...row, open: openReferenceBackend }].map(async each => {
        const { backend, close } = await openDraftBackend(each)
        const sequence = backend.createSequence()
        await backend.step([{ sequence, tokens: [17, 3, 40], phase: 'prompt', output: 'none' }])
        await backend.step([{ sequence, tokens: [22], phase: 'decode', output: 'none' }])
        const logits: Float32Array[] = []
        const choose = (values: Float32Array, index: number) => {
          logits.push(values.slice())
          return 50 + index
        }
        await backend.draft!([{ sequence, token: 9, count: 3, choose }])
        await close()
        return logits
      }),
    )
    expect(chains[0]).toHaveLength(3)
    for (const [i, logits] of chains[0].entries()) expectClose(logits, chains[1][i], KERNEL, `guess ${i}`)
  },
)

test('without being asked for, the head is not loaded and changes nothing', async () => {
  const [, row] = goldenRows
  const [plain, drafting] = [await openDraftBackend(row, { drafts: false }), await openDraftBackend(row)]
  expect(plain.backend.draft).toBeUndefined()
  expect(plain.backend.config.draftHead).toBeNull()
  const [a, b] = [await fresh(plain.backend, [5, 6, 7]), await fresh(drafting.backend, [5, 6, 7])]
  expectSameBits(a.logits, b.logits)
  await plain.close()
  await drafting.close()
})

/** [kv heads, rows, headDim] -> [rows, kv heads, headDim] */
function byRow(values: Float32Array, { config }: Backend): Float32Array {
  const { numKvHeads, headDim } = config
  const rows = values.length / numKvHeads / headDim
  return values.map((_, i) => {
    const [row, head, channel] = [
      Math.floor(i / headDim / numKvHeads),
      Math.floor(i / headDim) % numKvHeads,
      i % headDim,
    ]
    return values[(head * rows + row) * headDim + channel]
  })
}
