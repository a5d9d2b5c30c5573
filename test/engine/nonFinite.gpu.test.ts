// Weights that hold NaN or infinity, wherever they lie: an error of the engine with its own name, never text and never
// logits. The context stays at its last token, other contexts do not notice, no state that is kept is poisoned, and once
// the files are whole again so are the answers.
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend } from '#moeflux/backends/backend.js'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import type { Context } from '#moeflux/engine/context.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { backends } from '../support/backends.js'
import { INFINITY, NAN, poisonExperts, poisonTensor } from '../support/faults/poison.js'
import { temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { expectClose, expectSameBits, FAST_LOGITS } from '../support/ops/bands.js'

let sound: string // 4 bits, without checksums

beforeAll(async () => {
  sound = mkdtempSync(join(tmpdir(), 'moeflux-sound-'))
  await packFolder(tinySource, sound)
  rmSync(join(sound, 'moeflux.json'))
})
afterAll(() => rmSync(sound, { recursive: true, force: true }))

const prompt = Array.from({ length: 9 }, (_, i) => 3 + 17 * i)

/** Every way to evaluate, each from where the context stands. */
const ways: readonly (readonly [string, (context: Context) => Promise<unknown>])[] = [
  ['evalPrompt', context => context.evalPrompt(prompt)],
  ['all logits', context => context.evaluate(prompt, { logits: 'all' })],
  ['no logits', context => context.evaluate(prompt, { logits: 'none' })],
  ['evalToken', context => context.evalToken(5)],
  ['greedy', context => context.evalTokenGreedy(5)],
]

async function expectNonFinite(context: Context, names: RegExp, wanted = ways): Promise<void> {
  const before = context.tokens
  for (const [what, way] of wanted) {
    const error = await way(context).then(
      () => ({ name: 'an answer' }),
      error => error,
    )
    expect(error, what).toMatchObject({ name: 'NonFiniteError', code: 'NON_FINITE_OUTPUT' })
    expect(error.message, what).toMatch(names)
    expect([context.length, context.tokens], what).toEqual([before.length, before])
  }
}

const backendOf = (model: Model) => (model as unknown as { compute: Backend }).compute

const poisonedExperts = [
  [1, 'gate', 'scales', NAN],
  [2, 'up', 'biases', INFINITY],
  [3, 'down', 'scales', NAN],
  [0, 'gate', 'biases', INFINITY],
] as const

describe.each(backends.filter(({ name }) => name !== 'webgpu exact'))(
  '$name: experts that are damaged while the model is open',
  ({ options, isSlow }) => {
    let model: Model
    let folder: string
    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), 'moeflux-poisoned-'))
      cpSync(sound, folder, { recursive: true })
      model = await openModel(folder, options)
    })
    afterAll(async () => {
      await model.close()
      rmSync(folder, { recursive: true, force: true })
    })

    test('fail every evaluation that uses them, are named, and work again when the file does', async () => {
      const empty = model.createContext()
      const begun = model.createContext()
      await begun.evalPrompt(prompt.slice(0, 3))
      const state = await begun.saveState()
      const fresh = async () => (await model.createContext().evalPrompt(prompt)) as Float32Array
      const want = await fresh()
      for (const [layer, projection, kind, value] of isSlow ? poisonedExperts.slice(0, 2) : poisonedExperts) {
        const heal = await poisonExperts(folder, layer, projection, kind, value)
        backendOf(model).forgetExperts()
        const names = new RegExp(`layer ${layer}, experts? [\\d, ]+, whose weights on the disk are not finite`)
        await expectNonFinite(empty, names)
        await expectNonFinite(begun, names, ways.slice(0, 1))
        heal()
        // Nobody but the engine itself has told it to read them again.
        expectClose(await fresh(), want, FAST_LOGITS, `after ${projection} ${kind}`)
        expect(Buffer.compare(await begun.saveState(), state)).toBe(0)
      }
    })
  },
)

const layer = (n: number) => `model.layers.${n}`
const resident: readonly (readonly [what: string, tensor: string, names: RegExp, value: number])[] = [
  ['a router', `${layer(2)}.mlp.gate.scales`, /layer 2\b.*router/, NAN],
  ['an input norm', `${layer(1)}.input_layernorm.weight`, /layer 1\b.*mixer/, NAN],
  ['a norm before experts', `${layer(3)}.post_attention_layernorm.weight`, /layer 3\b.*norm/, NAN],
  ['keys', `${layer(3)}.self_attn.k_proj.scales`, /layer 3\b.*mixer/, NAN],
  ['values (infinity)', `${layer(3)}.self_attn.v_proj.biases`, /layer 3\b.*mixer/, INFINITY],
  ['a linear projection', `${layer(0)}.linear_attn.in_proj_qkv.scales`, /layer 0\b.*mixer/, NAN],
  ['decay', `${layer(1)}.linear_attn.A_log`, /layer 1\b.*mixer/, NAN],
  ['a convolution', `${layer(2)}.linear_attn.conv1d.weight`, /layer 2\b.*mixer/, NAN],
  ['a shared expert', `${layer(1)}.mlp.shared_expert.up_proj.scales`, /layer 1\b.*shared/, NAN],
  ["a shared expert's gate", `${layer(1)}.mlp.shared_expert_gate.scales`, /layer 1\b.*shared/, NAN],
  ['the final norm', 'model.norm.weight', /head/, NAN],
  ['the head', 'lm_head.scales', /head/, NAN],
]

describe.each(backends.filter(({ name }) => name === 'reference' || name === 'wasm fast'))(
  '$name: resident weights that are not finite',
  ({ options }) => {
    test.each(resident)('%s', async (_, tensor, names, value) => {
      const folder = temporaryFolder()
      cpSync(sound, folder, { recursive: true })
      poisonTensor(folder, tensor, value)
      const model = await openModel(folder, options)
      try {
        // Without logits the head is never asked.
        const wanted = ways.filter(([what]) => what !== 'no logits' || !names.test('head'))
        await expectNonFinite(model.createContext(), names, wanted)
      } finally {
        await model.close()
      }
    })
  },
)

describe.each(backends.filter(({ isSlow }) => !isSlow))('$name: damage that some tokens meet', ({ options }) => {
  /** Two tokens such that an expert of some layer is used by the first alone. */
  async function tellApart(model: Model): Promise<{ layer: number; expert: number; first: number; second: number }> {
    const routes = await Promise.all(
      [5, 6, 7, 8].map(async token => {
        const context = model.createContext()
        await context.evalPrompt(prompt)
        const { routing } = await context.evaluate([token], { routing: true })
        return { token, experts: routing[0].experts } // [layers, 1, K]
      }),
    )
    for (const { token: first, experts } of routes) {
      for (const other of routes) {
        for (const [i, expert] of experts.entries()) {
          const layer = Math.floor(i / 2)
          const others = [...other.experts.subarray(layer * 2, layer * 2 + 2)]
          if (!others.includes(expert)) return { layer, expert, first, second: other.token }
        }
      }
    }
    throw new Error('all tokens use the same experts')
  }

  test('fails the one that meets it, and nobody else in the same step', async () => {
    const folder = temporaryFolder()
    cpSync(sound, folder, { recursive: true })
    const model = await openModel(folder, options)
    try {
      const { layer, expert, first, second } = await tellApart(model)
      const [one, other, calm] = [model.createContext(), model.createContext(), model.createContext()]
      for (const context of [one, other, calm]) await context.evalPrompt(prompt)
      const want = await calm.evalToken(second)
      const heal = await poisonExperts(folder, layer, 'down', 'scales', NAN, [expert])
      backendOf(model).forgetExperts()
      const [failed, answered] = await Promise.allSettled([one.evalToken(first), other.evalToken(second)])
      expect(failed).toMatchObject({ reason: { code: 'NON_FINITE_OUTPUT', layer, experts: [expert] } })
      expectSameBits((answered as PromiseFulfilledResult<Float32Array>).value, want)
      heal()
      expect((await one.evalToken(first)).every(Number.isFinite)).toBe(true)
    } finally {
      await model.close()
    }
  })

  test('in the middle of a long prompt: what came before is kept, sound, and can be gone on from', async () => {
    const folder = temporaryFolder()
    cpSync(sound, folder, { recursive: true })
    const model = await openModel(folder, options)
    try {
      const chunk = backendOf(model).chunkTokens
      const long = Array.from({ length: chunk + 20 }, (_, i) => (i * 7) % 256)
      const want = (await model.createContext().evalPrompt(long)) as Float32Array
      const context = model.createContext()
      await context.evalPrompt(long.slice(0, chunk))
      const heal = await poisonExperts(folder, 2, 'up', 'scales', NAN)
      backendOf(model).forgetExperts()
      await expectNonFinite(context, /layer 2\b/, [['the rest', c => c.evalPrompt(long.slice(chunk))]])
      expect(context.length).toBe(chunk)
      await context.checkpoint()
      const kept = await context.keep()
      heal()
      expectSameBits((await context.evalPrompt(long.slice(chunk))) as Float32Array, want)
      await context.restore(chunk)
      expectSameBits((await context.evalPrompt(long.slice(chunk))) as Float32Array, want)
      const other = model.createContext()
      await other.adopt(kept)
      kept.release()
      expectSameBits((await other.evalPrompt(long.slice(chunk))) as Float32Array, want)
    } finally {
      await model.close()
    }
  })
})

test('a snapshot that holds NaN or infinity is refused, and the context stays as it was', async () => {
  const model = await openModel(sound, { backend: 'reference' })
  try {
    const context = model.createContext()
    const logits = (await context.evalPrompt(prompt)) as Float32Array
    const state = await context.saveState()
    const floats = (state.length - 32) / 4
    for (const at of [0, Math.floor(floats / 2), floats - 1]) {
      const bytes = state.slice()
      new DataView(bytes.buffer).setFloat32(32 + at * 4, at === 0 ? Number.NaN : Number.NEGATIVE_INFINITY, true)
      await expect(context.loadState(bytes, prompt)).rejects.toMatchObject({ code: 'NotFinite' })
      expect(Buffer.compare(await context.saveState(), state)).toBe(0)
    }
    const broken = logits.slice()
    broken[17] = Number.NaN
    await expect(context.loadState(state, prompt, broken)).rejects.toMatchObject({ code: 'NotFinite' })
    await context.loadState(state, prompt, logits)
  } finally {
    await model.close()
  }
})
