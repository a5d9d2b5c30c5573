// Drafts on webgpu: the same tests as of other backends, on an emulated GPU, which is slow; so states are those of a small model.
import { beforeAll, describe, expect, test } from 'vitest'
import type { Backend, GuessedRows, SequenceState } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import { begin, describeDraftFaults, modelWithHead, round, rowOf, timeout } from '../../support/faults/draftFaults.js'
import { gpuGoldenRows, gpuStateRows, openDraftBackend } from '../../support/models/draftBackends.js'
import { describeGoldens } from '../../support/models/draftGoldens.js'
import { describeStates } from '../../support/models/draftStates.js'
import { expectClose, expectSameBits, KERNEL } from '../../support/ops/bands.js'

describeGoldens(gpuGoldenRows)
describeStates(gpuStateRows)
describeDraftFaults(['webgpu, files', 'webgpu and memory'])

test.each(gpuStateRows)('the head of a small model guesses as the reference does, $name', async row => {
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
})

test('auto does without the head where not all experts fit beside it, and says so; a number gets it anyway', async () => {
  const notices: string[] = []
  const onNotice = (line: string) => notices.push(line)
  const { backend, close } = await openDraftBackend(gpuStateRows[1], { drafts: 'auto', onNotice })
  expect(backend.draft).toBeUndefined()
  expect(backend.config.draftHead).toBeNull()
  expect(notices.filter(line => line.startsWith('no guesses ahead'))).toHaveLength(1)
  expect(notices, 'though it was opened twice').toEqual([...new Set(notices)])
  await close()
  const roomy = await openDraftBackend(gpuStateRows[0], { drafts: 'auto' })
  expect(roomy.backend.draft).toBeDefined()
  await roomy.close()
})

test('tokens that were decoded ahead of the host do not mix with guesses', async () => {
  const { backend, close } = await openDraftBackend(gpuStateRows[0])
  await backend.loaded()
  const length = 20
  const begin = async () => {
    const sequence = backend.createSequence()
    const [{ argmax }] = await backend.step([{ sequence, tokens: [17, 3, 40], phase: 'prompt', output: 'argmax' }])
    return { sequence, text: [argmax as number] }
  }
  // Logits come to the host: nothing is decoded ahead.
  const plain = await begin()
  while (plain.text.length < length) {
    const run = { sequence: plain.sequence, tokens: plain.text.slice(-1), phase: 'decode', output: 'last' } as const
    plain.text.push((await backend.step([run]))[0].argmax as number)
  }
  const mixed = await begin()
  const { sequence, text } = mixed
  for (let i = 1; text.length < length; i++) {
    const [token] = text.slice(-1)
    if (i % 7 > 0) {
      text.push((await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }]))[0].argmax!)
      continue
    }
    expect((await backend.draft!([{ sequence, token, count: 3 }]))[0].guesses).toHaveLength(3)
    const right = plain.text[text.length]
    const tokens = [token, right, (plain.text[text.length + 1] + 1) % 60]
    const keep = ({ argmax }: GuessedRows) => {
      text.push(argmax[0], argmax[1])
      return 2
    }
    await backend.step([{ sequence, tokens, phase: 'decode', output: 'argmax', keep }])
  }
  expect(text.slice(0, length)).toEqual(plain.text)
  await close()
})

describe('rounds on a GPU that holds all experts', () => {
  let backend: WebgpuBackend
  let submissions = 0
  beforeAll(async () => {
    const opened = await openDraftBackend(gpuStateRows[0])
    backend = opened.backend as WebgpuBackend
    await backend.loaded()
    const { queue } = backend.device
    const submit = queue.submit.bind(queue)
    queue.submit = commands => {
      submissions++
      return submit(commands)
    }
    return () => opened.close()
  }, timeout)

  interface Story {
    readonly sequence: SequenceState
    readonly tokens: number[] // committed
  }

  const startAt = async (length: number): Promise<Story> => {
    const sequence = backend.createSequence()
    const tokens = Array.from({ length }, (_, i) => (i * 7) % 60)
    const { chunkTokens } = backend
    for (let at = 0; at < length; at += chunkTokens) {
      await backend.step([{ sequence, tokens: tokens.slice(at, at + chunkTokens), phase: 'prompt', output: 'none' }])
    }
    return { sequence, tokens }
  }
  /** Guesses three tokens behind 9 and keeps `kept` of the four; how much the step has submitted. */
  const round = async ({ sequence, tokens }: Story, kept: number): Promise<number> => {
    const [{ guesses }] = await backend.draft!([{ sequence, token: 9, count: 3 }])
    const before = submissions
    const checked = [9, ...guesses]
    await backend.step([{ sequence, tokens: checked, phase: 'decode', output: 'argmax', keep: () => kept }])
    tokens.push(...checked.slice(0, kept))
    return submissions - before
  }
  const logitsAfter = async ({ sequence }: Story) =>
    (await backend.step([{ sequence, tokens: [5], phase: 'decode', output: 'last' }]))[0].logits as Float32Array
  /** As if the story's tokens after the prompt had come one by one. */
  const expectNoTrace = async (story: Story, promptLength: number) => {
    const plain = await startAt(promptLength)
    for (const token of story.tokens.slice(promptLength)) {
      await backend.step([{ sequence: plain.sequence, tokens: [token], phase: 'decode', output: 'last' }])
    }
    expectSameBits(await logitsAfter(story), await logitsAfter(plain))
    for (const { sequence } of [story, plain]) sequence.release()
  }

  test('who chooses sees the logits of its own sequence, which come back with the guess', async () => {
    const stories = [await startAt(3), await startAt(5)]
    const seen = (kept: Float32Array[]) => (logits: Float32Array, index: number) => {
      kept.push(logits.slice())
      return 20 + index
    }
    const draft = async (which: readonly Story[]) => {
      const kept = which.map((): Float32Array[] => [])
      const before = submissions
      await backend.draft!(which.map(({ sequence }, i) => ({ sequence, token: 9, count: 2, choose: seen(kept[i]) })))
      expect(submissions - before, 'one for each guess').toBe(2)
      return kept
    }
    const alone = [...(await draft([stories[0]])), ...(await draft([stories[1]]))]
    const together = await draft(stories)
    for (const [i, kept] of together.entries()) {
      expect(kept).toHaveLength(2)
      for (const [guess, logits] of kept.entries()) expectSameBits(logits, alone[i][guess], `guess ${guess} of ${i}`)
    }
    for (const { sequence } of stories) sequence.release()
  })

  test('a step is submitted with its guesses from the third round in a row on, past a page, too', async () => {
    const { pagesInUse } = backend.kv.pages
    // At 62 tokens four rows do not fit into the page: one of them is kept, then two, and at 64 nothing is in the next page yet.
    const story = await startAt(55)
    const counts: number[] = []
    for (const kept of [1, 4, 2, 1, 1, 4, 3]) counts.push(await round(story, kept))
    expect(counts).toEqual([1, 1, 0, 0, 0, 0, 0])
    expect(backend.kv.pages.pagesInUse - pagesInUse).toBe(2)
    await expectNoTrace(story, 55)
    expect(backend.kv.pages.pagesInUse).toBe(pagesInUse)
  })

  test('a state that is held while such a step is on its way stays what it was', async () => {
    const story = await startAt(20)
    for (const kept of [1, 3]) await round(story, kept)
    const before = [...story.tokens]
    const { sequence } = story
    const [{ guesses }] = await backend.draft!([{ sequence, token: 9, count: 3 }])
    const held = await sequence.hold()
    const checked = [9, ...guesses]
    const submitted = submissions
    await backend.step([{ sequence, tokens: checked, phase: 'decode', output: 'argmax', keep: () => 3 }])
    expect(submissions).toBe(submitted)
    story.tokens.push(...checked.slice(0, 3))
    const other = { sequence: backend.createSequence(), tokens: before }
    await other.sequence.restore(held)
    held.release()
    for (const [each, kept] of [
      [story, 2],
      [other, 4],
    ] as const)
      await round(each, kept)
    await expectNoTrace(story, 20)
    await expectNoTrace(other, 20)
  })

  test.each<[string, (story: Story) => Promise<void>]>([
    [
      'other tokens are checked',
      async ({ sequence, tokens }) => {
        const others = [9, 11, 12]
        await backend.step([{ sequence, tokens: others, phase: 'decode', output: 'argmax', keep: () => 2 }])
        tokens.push(9, 11)
      },
    ],
    [
      'a token alone is evaluated',
      async ({ sequence, tokens }) => {
        await backend.step([{ sequence, tokens: [9], phase: 'decode', output: 'argmax' }])
        tokens.push(9)
      },
    ],
    [
      'another sequence comes first',
      async () => {
        const other = await startAt(3)
        await logitsAfter(other)
        other.sequence.release()
      },
    ],
    [
      'its state is held, and it goes on elsewhere and comes back',
      async story => {
        const held = await story.sequence.hold()
        await logitsAfter(story)
        await story.sequence.restore(held)
        held.release()
      },
    ],
    [
      'guesses are asked for again',
      async ({ sequence }) => {
        await backend.draft!([{ sequence, token: 31, count: 2 }])
      },
    ],
    [
      'the step is given up',
      async ({ sequence }) => {
        const [{ guesses }] = await backend.draft!([{ sequence, token: 9, count: 3 }])
        const abort = new AbortController()
        const run = { sequence, tokens: [9, ...guesses], phase: 'decode', output: 'argmax', keep: () => 4 } as const
        const step = backend.step([run], { signal: abort.signal })
        abort.abort()
        await expect(step).rejects.toThrow()
      },
    ],
    [
      'the guesses are given up',
      async ({ sequence }) => {
        const abort = new AbortController()
        const drafting = backend.draft!([{ sequence, token: 9, count: 3 }], { signal: abort.signal })
        abort.abort()
        await drafting.catch(() => {})
      },
    ],
  ])('such a step leaves no trace where %s', async (_, disturb) => {
    const story = await startAt(20)
    for (const kept of [1, 3]) await round(story, kept)
    await backend.draft!([{ sequence: story.sequence, token: 9, count: 3 }]) // its step is on its way
    await disturb(story)
    for (const kept of [2, 1, 4]) await round(story, kept)
    await expectNoTrace(story, 20)
  })
})

const model = modelWithHead()

/** A round whose guesses are checked as they are; the third in a row is submitted with its step. */
async function plainRound(backend: Backend, sequence: SequenceState): Promise<Float32Array> {
  const [{ guesses }] = await backend.draft!([{ sequence, token: 33, count: 3 }])
  const keep = () => 2
  const run = { sequence, tokens: [33, ...guesses], phase: 'decode', output: 'argmax', keep } as const
  const [{ argmax }] = await backend.step([run])
  return Float32Array.of(...guesses, argmax!)
}

async function beginPlain(backend: Backend): Promise<SequenceState> {
  const sequence = await begin(backend)
  for (let i = 0; i < 2; i++) await plainRound(backend, sequence)
  return sequence
}

test.each([
  ['a round', begin, round, 4],
  ['a round that is submitted with its step', beginPlain, plainRound, 2],
] as const)(
  'a GPU that holds all experts is lost at any submission of %s',
  { timeout },
  async (_, first, next, least) => {
    const open = async () => {
      const { backend } = await rowOf('webgpu, files').open(model.packed, 44, { drafts: true })
      await backend.loaded()
      return backend as WebgpuBackend
    }
    const whole = await open()
    const want = await next(whole, await first(whole))
    await whole.close()
    for (let position = 0; ; position++) {
      const backend = await open()
      const sequence = await first(backend)
      const { queue } = backend.device
      const submit = queue.submit.bind(queue)
      let left = position
      queue.submit = commands => {
        if (left-- === 0) backend.device.destroy()
        return submit(commands)
      }
      const outcome = await next(backend, sequence).catch((error: Error) => error)
      if (left < 0) expect(outcome).toMatchObject({ code: 'DEVICE_LOST' })
      await backend.close()
      if (left < 0) continue
      expectSameBits(outcome as Float32Array, want)
      expect(position).toBeGreaterThanOrEqual(least)
      break
    }
  },
)
