// Drafts on webgpu: the same tests as of other backends, on an emulated GPU, which is slow; so states are those of a small model.
import { expect, test } from 'vitest'
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
