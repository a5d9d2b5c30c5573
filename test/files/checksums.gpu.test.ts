// Weights that are not the ones that were packed: every read is compared with the folder's checksums, so that a flipped bit
// is a failed read with a name and a place, and never an answer. Folders without checksums work as ever.
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend } from '#moeflux/backends/backend.js'
import { type Model, openModel, openModelWith } from '#moeflux/chat/openModel.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { backends } from '../support/backends.js'
import { overwrite } from '../support/faults/poison.js'
import { temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { expectClose, FAST_LOGITS } from '../support/ops/bands.js'

const LAYER = 2
const EXPERTS = 8
const layerFile = `packed_experts/layer_0${LAYER}.bin`
const prompt = Array.from({ length: 9 }, (_, i) => 3 + 17 * i)

let sound: string

beforeAll(async () => {
  sound = mkdtempSync(join(tmpdir(), 'moeflux-sound-'))
  await packFolder(tinySource, sound)
})
afterAll(() => rmSync(sound, { recursive: true, force: true }))

function copy(): string {
  const folder = temporaryFolder()
  cpSync(sound, folder, { recursive: true })
  return folder
}

/** One bit of every expert of a layer, in a weight: what it computes is wrong and finite. Returns how to undo it. */
function flip(folder: string): () => void {
  const path = join(folder, layerFile)
  const before = readFileSync(path)
  const bytes = Buffer.from(before)
  const expertSize = bytes.length / EXPERTS
  for (let expert = 0; expert < EXPERTS; expert++) bytes[expert * expertSize + 100 + expert] ^= 0x40
  overwrite(path, bytes)
  return () => overwrite(path, before)
}

const backendOf = (model: Model) => (model as unknown as { compute: Backend }).compute
const evaluate = async (model: Model) => (await model.createContext().evalPrompt(prompt)) as Float32Array

describe.each(backends.filter(({ name }) => name === 'reference' || name.endsWith('fast')))(
  '$name: experts that are overwritten while the model is open',
  ({ options, isSlow }) => {
    test('fail what needs them, are never in memory, and work again when the file does', async () => {
      const folder = copy()
      const model = await openModel(folder, options)
      try {
        const context = model.createContext()
        await context.evalPrompt(prompt.slice(0, 2))
        const state = await context.saveState()
        const want = await evaluate(model)
        const heal = flip(folder)
        backendOf(model).forgetExperts()
        for (const way of [() => evaluate(model), () => context.evalToken(5), () => context.evalTokenGreedy(5)]) {
          const error = await way().catch(error => error)
          expect(error).toMatchObject({
            name: 'ExpertReadError',
            code: 'EXPERT_READ',
            layer: LAYER,
            expert: expect.any(Number),
            file: join(folder, layerFile),
            detail: expect.stringContaining('do not match their checksum'),
          })
          const expertSize = readFileSync(join(folder, layerFile)).length / EXPERTS
          expect(error.offset).toBe(error.expert * expertSize)
          const resident = backendOf(model).residency()
          expect([...resident.subarray(LAYER * EXPERTS, (LAYER + 1) * EXPERTS)]).toEqual(new Array(EXPERTS).fill(0))
        }
        await expect(model.readExpert(LAYER, 3)).rejects.toMatchObject({ code: 'EXPERT_READ', layer: LAYER, expert: 3 })
        await expect(model.readExpert(LAYER - 1, 3)).resolves.toBeInstanceOf(Uint8Array)
        expect(context.length).toBe(2)
        expect(Buffer.compare(await context.saveState(), state)).toBe(0)
        heal()
        expectClose(await evaluate(model), want, FAST_LOGITS, 'after')
      } finally {
        await model.close()
      }
    })

    if (isSlow) return
    test('are used as they are where checksums are switched off, or the folder has none', async () => {
      const want = await withModel(sound, model => evaluate(model))
      const folder = copy()
      flip(folder)
      const wrong = await withModel(folder, model => evaluate(model), { checksums: false })
      expect([...wrong]).not.toEqual([...want])
      // As folders were before there were checksums by blocks.
      for (const name of ['packed_experts.sums', 'model_weights.sums']) rmSync(join(folder, name))
      const path = join(folder, 'moeflux.json')
      const metadata = JSON.parse(readFileSync(path, 'utf8'))
      for (const name of Object.keys(metadata.files)) if (name.endsWith('.sums')) delete metadata.files[name]
      writeFileSync(path, JSON.stringify(metadata))
      expect([...(await withModel(folder, model => evaluate(model)))]).toEqual([...wrong])
    })

    async function withModel<T>(folder: string, use: (model: Model) => Promise<T>, more = {}): Promise<T> {
      const model = await openModel(folder, { ...options, ...more })
      return await use(model).finally(() => model.close())
    }
  },
)

test('bytes that come wrong once or twice are read again, and nobody notices', async () => {
  const want = await openModel(sound, { backend: 'wasm', threads: 1 }).then(async model => {
    const logits = await evaluate(model)
    await model.close()
    return logits
  })
  const faults = new ReadFaults()
  const model = await openModelWith(sound, { backend: 'wasm', threads: 1 }, { readFaults: faults.buffer })
  try {
    faults.set('flip', { reads: 2, file: LAYER })
    expect([...(await evaluate(model))]).toEqual([...want])
    backendOf(model).forgetExperts()
    faults.set('flip', { file: LAYER })
    await expect(evaluate(model)).rejects.toMatchObject({ code: 'EXPERT_READ', layer: LAYER })
    faults.set('none')
    expect([...(await evaluate(model))]).toEqual([...want])
  } finally {
    await model.close()
  }
})

describe.each(backends.filter(({ name }) => name === 'reference' || name === 'wasm fast'))(
  '$name: a folder that is damaged',
  ({ options }) => {
    const open = (folder: string, more = {}) => openModel(folder, { ...options, ...more })

    test('in its resident part does not open, and says where; without checksums it does', async () => {
      const folder = copy()
      const path = join(folder, 'model_weights.bin')
      const bytes = readFileSync(path)
      const { tensors } = JSON.parse(readFileSync(join(folder, 'model_weights.json'), 'utf8'))
      for (const name of ['model.embed_tokens.weight', 'model.layers.3.input_layernorm.weight', 'lm_head.scales']) {
        const { offset, size } = tensors[name]
        const at = offset + Math.floor(size / 2)
        bytes[at] ^= 1
        writeFileSync(path, bytes)
        await expect(open(folder), name).rejects.toMatchObject({ code: 'CHECKSUM_MISMATCH', file: path })
        await (await open(folder, { checksums: false })).close()
        bytes[at] ^= 1
      }
      writeFileSync(path, bytes)
      await (await open(folder)).close()
    })

    test.each(['packed_experts.sums', 'model_weights.sums'])('in %s is told so, not that weights are', async name => {
      const folder = copy()
      const path = join(folder, name)
      const bytes = readFileSync(path)
      bytes[bytes.length - 3] ^= 8
      writeFileSync(path, bytes)
      await expect(open(folder)).rejects.toMatchObject({ name: 'FormatError', code: 'CHECKSUM_MISMATCH', file: path })
      writeFileSync(path, bytes.subarray(0, 40))
      await expect(open(folder)).rejects.toMatchObject({ name: 'FormatError', code: 'SIZE_MISMATCH', file: path })
      rmSync(path)
      await expect(open(folder)).rejects.toMatchObject({ code: 'READ_FAILED' })
      await (await open(folder, { checksums: false })).close()
    })
  },
)
