// A round of drafts that something goes wrong in: reads that fail, each in its turn, in the head and in the rows of a step; aborts at
// every place where workers meet. After each the same round must come to what it would have, to the bit. And batches of
// sequences of which each has other guesses come true.
import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { GuessedRows, HeldState, SequenceState } from '#moeflux/backends/backend.js'
import { packTwoLayers } from '../support/models/twoLayerModel.js'
import { expectSameBits } from '../support/ops/bands.js'
import { seededRandom } from '../support/random.js'
import { openGated } from '../support/wasm/gatedWasm.js'
import { reachedOr, setWorkers } from '../support/wasm/stepPositions.js'
import { localHost } from '../support/wasm/wasmHosts.js'
import { openOnWasm } from '../support/wasm/wasmModels.js'

const PROMPT = [3, 141, 59, 26, 5]
const TOKEN = 35
const ABORT_STRIDE = 5

let folder: string
let opened: Awaited<ReturnType<typeof openGated>>
let before: HeldState // after the prompt
let want: Round

interface Round {
  readonly guesses: readonly number[]
  readonly logits: Float32Array // of all tokens
  readonly next: Float32Array // of one more token, after what was kept
}

beforeAll(async () => {
  folder = await packTwoLayers(true)
  opened = await openGated(folder, 2, {}, undefined, true)
  setWorkers(opened, 2)
  const sequence = opened.backend.createSequence()
  await opened.backend.step([{ sequence, tokens: PROMPT, phase: 'prompt', output: 'none' }])
  before = await sequence.hold()
  want = await round(sequence)
  sequence.release()
})
afterAll(async () => {
  before.release()
  await opened.close()
  rmSync(dirname(folder), { recursive: true, force: true })
})

async function begin(): Promise<SequenceState> {
  const sequence = opened.backend.createSequence()
  await sequence.restore(before)
  opened.backend.forgetExperts()
  return sequence
}

/** Guesses, a step that keeps two of its four tokens, and one token more. */
async function round(sequence: SequenceState, signal?: AbortSignal): Promise<Round> {
  const { backend } = opened
  const [{ guesses }] = await backend.draft!([{ sequence, token: TOKEN, count: 3 }], { signal })
  let logits = new Float32Array(0)
  const keep = (rows: GuessedRows) => {
    logits = rows.logits!.slice()
    return 2
  }
  await backend.step([{ sequence, tokens: [TOKEN, ...guesses], phase: 'decode', output: 'all', keep }], { signal })
  const [{ logits: next }] = await backend.step([{ sequence, tokens: [7], phase: 'decode', output: 'last' }], {
    signal,
  })
  return { guesses, logits, next: next! }
}

/** In the sequence as it is after what went wrong, if that was before its step; else from the start. */
async function expectAllWell(sequence: SequenceState): Promise<void> {
  if (sequence.length !== PROMPT.length) await sequence.restore(before)
  for (const each of [sequence, await begin()]) {
    const got = await round(each)
    expect(got.guesses).toEqual(want.guesses)
    expectSameBits(got.logits, want.logits, 'the step')
    expectSameBits(got.next, want.next, 'the token after it')
    each.release()
  }
}

test('reads that fail, each in its turn', async () => {
  const { faults } = opened
  const failedAt = { draft: 0, step: 0, after: 0 }
  let isMet = true
  for (let skip = 0; isMet; skip++) {
    const sequence = await begin()
    faults.pick('error', skip)
    const failure = await round(sequence).then(
      () => null,
      (error: Error & { code?: string; layer?: number }) => error,
    )
    isMet = faults.isMet
    faults.set('none')
    if (failure !== null) {
      expect(failure).toMatchObject({ code: 'EXPERT_READ' })
      const isDraft = failure.layer === opened.backend.config.numLayers
      failedAt[isDraft ? 'draft' : sequence.length === PROMPT.length ? 'step' : 'after']++
      expect([PROMPT.length, PROMPT.length + 2], 'all of a step or nothing').toContain(sequence.length)
    }
    await expectAllWell(sequence)
  }
  expect(failedAt.draft).toBeGreaterThan(1)
  expect(failedAt.step).toBeGreaterThan(5)
})

test.each([0, 1])('worker %i, an abort at every place', async worker => {
  const { gate } = opened
  let aborted = 0
  for (let place = 1; ; place += ABORT_STRIDE) {
    const sequence = await begin()
    const controller = new AbortController()
    gate.arm(worker, place)
    const ending = round(sequence, controller.signal).then(
      () => null,
      (error: Error) => error,
    )
    if (!(await reachedOr(opened, ending))) {
      gate.open()
      sequence.release()
      break
    }
    controller.abort(new Error('enough'))
    gate.open()
    const failure = await ending
    if (failure !== null) expect(failure.message).toBe('enough')
    aborted += failure === null ? 0 : 1
    await expectAllWell(sequence)
  }
  expect(aborted * ABORT_STRIDE).toBeGreaterThan(60)
})

test('on the thread of the caller, where nothing is shared, rounds are as good', async () => {
  const { backend, close } = await openOnWasm(folder, { wasmHost: localHost, drafts: true })
  const [guessing, plain] = [backend.createSequence(), backend.createSequence()]
  const evaluate = async (sequence: SequenceState, tokens: readonly number[]) =>
    (await backend.step([{ sequence, tokens, phase: 'prompt', output: 'last' }]))[0].logits!
  await evaluate(guessing, PROMPT)
  await evaluate(plain, PROMPT)
  const [{ guesses }] = await backend.draft!([{ sequence: guessing, token: TOKEN, count: 3 }])
  expect(guesses).toHaveLength(3)
  const tokens = [TOKEN, ...guesses]
  await backend.step([{ sequence: guessing, tokens, phase: 'decode', output: 'argmax', keep: () => 3 }])
  for (const token of tokens.slice(0, 3)) await evaluate(plain, [token])
  expectSameBits(await evaluate(guessing, [7]), await evaluate(plain, [7]))
  const draft = async (sequence: SequenceState) => (await backend.draft!([{ sequence, token: 9, count: 2 }]))[0].guesses
  expect(await draft(guessing)).toEqual(await draft(plain))
  await close()
})

test('sequences that each have other guesses come true say what they would alone', async () => {
  const { backend } = opened
  const random = seededRandom(8)
  const prompts = [[3, 14], [15, 92, 6], [53, 58, 97, 93], [200]]
  const length = 24
  const greedy = async (prompt: readonly number[]) => {
    const sequence = backend.createSequence()
    const text: number[] = []
    for (let tokens = prompt; text.length < length; tokens = text.slice(-1)) {
      const phase = text.length === 0 ? 'prompt' : 'decode'
      text.push((await backend.step([{ sequence, tokens, phase, output: 'argmax' }]))[0].argmax!)
    }
    sequence.release()
    return text
  }
  const texts = await Promise.all(prompts.map(greedy))
  const answers = prompts.map(() => [] as number[])
  const sequences = prompts.map(() => backend.createSequence())
  for (const [i, tokens] of prompts.entries()) {
    const run = { sequence: sequences[i], tokens, phase: 'prompt', output: 'argmax' } as const
    answers[i].push((await backend.step([run]))[0].argmax!)
  }
  while (answers.some(answer => answer.length < length)) {
    const open = [...prompts.keys()].filter(i => answers[i].length < length)
    const runs = open.map(i => {
      const answer = answers[i]
      // The head's own, or right up to somewhere and wrong from there on.
      const right = Math.floor(random() * 4)
      const guesses = texts[i]
        .slice(answer.length, answer.length + Math.floor(random() * 4))
        .map((token, at) => (at < right ? token : (token + 1) % 512))
      const keep = ({ argmax }: GuessedRows) => {
        let kept = 1
        while (kept <= guesses.length && guesses[kept - 1] === argmax[kept - 1]) kept++
        answer.push(...argmax.subarray(0, kept))
        return kept
      }
      const tokens = [answer.at(-1)!, ...guesses]
      return { sequence: sequences[i], tokens, phase: 'decode', output: 'argmax', keep } as const
    })
    await backend.draft!(runs.map(({ sequence, tokens }) => ({ sequence, token: tokens[0], count: 2 })))
    await backend.step(runs)
  }
  for (const [i, answer] of answers.entries()) expect(answer.slice(0, length), `sequence ${i}`).toEqual(texts[i])
  for (const sequence of sequences) sequence.release()
})
