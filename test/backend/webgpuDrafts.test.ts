// Drafts on webgpu: the same tests as of other backends, on an emulated GPU, which is slow; so states are those of a small model.
import { expect, test } from 'vitest'
import type { GuessedRows } from '#moeflux/compute/backend.js'
import { openReferenceBackend } from '#moeflux/compute/reference/referenceBackend.js'
import type { WebgpuBackend } from '#moeflux/compute/webgpu/webgpuBackend.js'
import { expectClose, expectSameBits, KERNEL } from '../support/bands.js'
import { gpuGoldenRows, gpuStateRows, openDraftBackend } from '../support/draftBackends.js'
import { begin, describeDraftFaults, modelWithHead, round, rowOf, timeout } from '../support/draftFaults.js'
import { describeGoldens } from '../support/draftGoldens.js'
import { describeStates } from '../support/draftStates.js'

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

const model = modelWithHead()

test('a GPU that holds all experts is lost at any submission of a round', { timeout }, async () => {
  const open = async () => {
    const { backend } = await rowOf('webgpu, files').open(model.packed, 44, { drafts: true })
    await backend.loaded()
    return backend as WebgpuBackend
  }
  const whole = await open()
  const want = await round(whole, await begin(whole))
  await whole.close()
  for (let position = 0; ; position++) {
    const backend = await open()
    const sequence = await begin(backend)
    const { queue } = backend.device
    const submit = queue.submit.bind(queue)
    let left = position
    queue.submit = commands => {
      if (left-- === 0) backend.device.destroy()
      return submit(commands)
    }
    const outcome = await round(backend, sequence).catch((error: Error) => error)
    if (left < 0) expect(outcome).toMatchObject({ code: 'DEVICE_LOST' })
    await backend.close()
    if (left < 0) continue
    expectSameBits(outcome as Float32Array, want)
    expect(position).toBeGreaterThan(3)
    break
  }
})
