// The life of sequences on every backend: whatever was done before, a state equals a fresh evaluation of its tokens.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Model, openModel } from '#moeflux/chat/openModel.js'
import type { Context } from '#moeflux/engine/context.js'
import type { KeptState } from '#moeflux/engine/state.js'
import { joinFloats } from '#moeflux/model/floats.js'
import { stateBackends } from '../support/backends.js'
import { packTiny } from '../support/models/models.js'
import { expectClose, expectSameBits, KERNEL } from '../support/ops/bands.js'
import { seededRandom } from '../support/random.js'

const CONTEXT_LENGTH = 400
const SHORT_CONTEXT = 48

describe.each(stateBackends)('sequences on $name', backend => {
  // An emulated GPU and plain JavaScript do the same with fewer tokens and rounds.
  const isBrief = backend.isSlow || backend.name === 'reference'
  // Going back, and what may follow what, is the same in either precision: at length once on wasm.
  const isShort = isBrief || backend.name === 'wasm fast'
  let folder: string
  let model: Model
  let short: Model // with a context limit that tests can reach

  beforeAll(async () => {
    folder = await packTiny()
    model = await openModel(folder, { ...backend.options, contextLength: CONTEXT_LENGTH })
    short = await openModel(folder, { ...backend.options, contextLength: SHORT_CONTEXT })
  })
  afterAll(() => Promise.all([model.close(), short.close()]))

  const same = (got: Float32Array | null, want: Float32Array, what: string) => {
    if (!got) throw new Error(`${what}: no logits`)
    if (backend.cuts === 'bits') expectSameBits(got, want, what)
    else expectClose(got, want, backend.cuts, what)
  }

  const randomTokens = (seed: number, count: number) => {
    const random = seededRandom(seed)
    return Array.from({ length: count }, () => Math.floor(random() * 512))
  }

  const fresh = async (tokens: readonly number[]): Promise<Float32Array> => {
    const context = model.createContext()
    const logits = await context.evalPrompt(tokens)
    await context.close()
    return logits as Float32Array
  }

  test('tells of each token its experts, what they count for, and its row after the final norm', async () => {
    const tokens = randomTokens(7, backend.isSlow ? 20 : 90) // more than a chunk of the reference
    const context = model.createContext()
    const { layers, finalNorm } = await context.probe({ tokens })
    const rows: Float32Array[] = []
    const starts: number[] = []
    const { routing } = await context.evaluate(tokens, {
      routing: 'weights',
      logits: 'none',
      onHidden: (start, chunk) => {
        starts.push(start)
        rows.push(chunk)
      },
    })
    const { hiddenSize, moeLayers } = model.config
    const k = model.expertsPerToken
    expectClose(joinFloats(rows), finalNorm as Float32Array, KERNEL, 'rows after the final norm')
    let first = 0
    for (const [chunk, { tokens: count, experts, weights = new Float32Array(0) }] of routing.entries()) {
      expect([starts[chunk], rows[chunk].length]).toEqual([first, count * hiddenSize])
      expect(weights.length).toBe(experts.length)
      for (const place of moeLayers.keys()) {
        const { routerIndices, routerWeights } = layers[moeLayers[place]]
        const at = [place * count * k, (place + 1) * count * k] as const
        const from = [first * k, (first + count) * k] as const
        expect([...experts.subarray(...at)]).toEqual([...routerIndices.subarray(...from)])
        expectClose(weights.subarray(...at), routerWeights.subarray(...from), KERNEL, `weights of layer ${place}`)
      }
      first += count
    }
    expect(first).toBe(tokens.length)
    const plain = await model.createContext().evaluate([1, 2], { routing: true })
    expect(plain.routing[0]).not.toHaveProperty('weights')
    await context.close()
  })

  test('any cut of the same tokens into calls gives the same', async () => {
    const count = isBrief ? 80 : 150
    const tokens = randomTokens(1, count)
    const want = await fresh(tokens)
    const cuts = isBrief
      ? [
          [63, 17],
          [64, 16],
        ]
      : [
          [1, 149],
          [63, 64, 23],
          [64, 64, 22],
          [149, 1],
          [3, 50, 97],
        ]
    for (const cut of cuts) {
      const context = model.createContext()
      let start = 0
      let logits: Float32Array | null = null
      for (const size of cut) {
        logits = await context.evalPrompt(tokens.slice(start, start + size), { start })
        start += size
      }
      // Among prompts the bits agree on every backend.
      expectSameBits(logits as Float32Array, want, `cut ${cut}`)
      await context.close()
    }
    const context = model.createContext()
    const prompt = isBrief ? 72 : 100
    await context.evalPrompt(tokens.slice(0, prompt))
    for (const token of tokens.slice(prompt, -1)) await context.evalToken(token)
    same(await context.evalToken(tokens[count - 1]), want, 'token by token')
    await context.close()
  })

  test('evaluations of several contexts at once do not touch each other', async () => {
    const sequences = [10, 11, 12, 13].map(seed => randomTokens(seed, isBrief ? 15 : 80))
    const wants = await Promise.all(sequences.map(fresh))
    const contexts = sequences.map(() => model.createContext())
    const logits = await Promise.all(
      contexts.map(async (context, i) => {
        const [tokens, prompt] = [sequences[i], isBrief ? 8 + i : 20 * i + 5]
        let last = await context.evalPrompt(tokens.slice(0, prompt))
        for (const token of tokens.slice(prompt)) last = await context.evalToken(token)
        return last
      }),
    )
    logits.forEach((got, i) => {
      same(got, wants[i], `sequence ${i}`)
    })
    await Promise.all(contexts.map(context => context.close()))
  })

  test('calls on one context queue in order', async () => {
    const tokens = randomTokens(20, 40)
    const context = model.createContext()
    const results = await Promise.all([
      context.evalPrompt(tokens.slice(0, 10)),
      context.checkpoint(),
      context.evalPrompt(tokens.slice(10, 39)),
      context.evalToken(tokens[39]),
      context.restore(10),
      context.evalPrompt(tokens.slice(10)),
    ])
    expect(results[1]).toBe(10)
    const want = await fresh(tokens)
    same(results[3], want, 'after the first pass')
    same(results[4], await fresh(tokens.slice(0, 10)), 'the kept logits')
    same(results[5], want, 'after the second pass')
    await context.close()
  })

  test('rewind to every position of a long sequence, replaying no more than from the nearest checkpoint', {
    timeout: 240_000,
  }, async () => {
    const count = isShort ? 24 : 300
    const tokens = randomTokens(30, count)
    const oracle = model.createContext()
    const { logits } = await oracle.evaluate(tokens, { logits: 'all' })
    await oracle.close()
    const at = (length: number) => (logits as Float32Array).subarray((length - 1) * 512, length * 512)
    const context = model.createContext({ maxCheckpoints: 24 })
    for (let start = 0; start < count; ) {
      const size = Math.min(start % 3 === 0 ? 17 : 1, count - start) // prompts and single tokens in turn
      if (size > 1) await context.evalPrompt(tokens.slice(start, start + size))
      else await context.evalToken(tokens[start])
      start += size
      if (start % 2 === 0) await context.checkpoint()
    }
    expect(context.checkpoints.length).toBeGreaterThan(count / 30)
    for (const position of [count, count - 1, 170, 40, 1].filter(p => p <= count)) {
      // From the full sequence each time, on a context of its own that shares its state.
      const copy = model.createContext()
      const kept = await context.keep()
      await copy.adopt(kept)
      kept.release()
      if (position % 2 === 0) same(await copy.rewind(position), at(position), `rewind to ${position}`)
      await copy.close()
    }
    for (let position = count; position > 0; position--) {
      const nearest = context.checkpoints.filter(p => p <= position).at(-1) ?? 0
      const replayed = position === context.length ? 0 : position - nearest
      const before = model.stats().tokens
      same(await context.rewind(position), at(position), `rewind to ${position}`)
      expect(model.stats().tokens - before, `tokens replayed for ${position}`).toBe(replayed)
      expect(context.length).toBe(position)
    }
    expect(await context.rewind(0)).toBeNull()
    expect(context.length).toBe(0)
    same(await context.evalPrompt(tokens.slice(0, 7)), at(7), 'after rewinding to 0')
    await context.close()
  })

  test('random operations agree with a simple model of the rules', { timeout: 240_000 }, async () => {
    const logitsOf = new Map<string, Float32Array>()
    const freshOnce = async (tokens: readonly number[]) => {
      const key = tokens.join()
      const known = logitsOf.get(key) ?? (await fresh(tokens))
      logitsOf.set(key, known)
      return known
    }
    const kinds = [
      'prompt',
      'token',
      'checkpoint',
      'restore',
      'rewind',
      'clear',
      'save',
      'load',
      'keep',
      'adopt',
      'max',
    ] as const
    const weights = [6, 4, 5, 4, 4, 1, 1, 2, 1, 2, 1]
    const kind = fc.oneof(...kinds.map((k, i) => ({ weight: weights[i], arbitrary: fc.constant(k) })))
    const operation = fc.record({ kind, which: fc.nat(1), n: fc.nat(30), seed: fc.nat(3) })
    const run = async (
      operations: readonly { kind: (typeof kinds)[number]; which: number; n: number; seed: number }[],
    ) => {
      const pairs = [0, 1].map(() => ({
        context: short.createContext({ maxCheckpoints: 3 }),
        rules: new SimpleContext(3),
      }))
      let saved: { bytes: Uint8Array; tokens: number[] } | null = null
      let kept: KeptState | null = null
      for (const { kind, which, n, seed } of operations) {
        const { context, rules } = pairs[which]
        const room = SHORT_CONTEXT - rules.tokens.length
        // The other context evaluates at the same time, and goes back to where it was.
        const other = pairs[1 - which]
        const disturbance = disturb(other.context, other.rules)
        let logits: Float32Array | null = null
        if (kind === 'prompt' && room > 0) {
          const tokens = randomTokens(seed + 100, 1 + (n % room))
          logits = await context.evalPrompt(tokens)
          rules.tokens.push(...tokens)
        } else if (kind === 'token' && room > 0) {
          logits = await context.evalToken(n)
          rules.tokens.push(n)
        } else if (kind === 'checkpoint') {
          expect(await context.checkpoint()).toBe(rules.tokens.length)
          rules.store()
        } else if (kind === 'restore') {
          const position = rules.positions[n % Math.max(1, rules.positions.length)] ?? n
          if (rules.positions.includes(position)) {
            logits = await context.restore(position)
            rules.restore(position)
          } else await expect(context.restore(position)).rejects.toMatchObject({ code: 'NO_CHECKPOINT' })
        } else if (kind === 'rewind') {
          if (n > rules.tokens.length) await expect(context.rewind(n)).rejects.toMatchObject({ code: 'BAD_POSITION' })
          else {
            logits = await context.rewind(n)
            rules.rewind(n)
          }
        } else if (kind === 'clear') {
          await context.clear()
          rules.reset([])
        } else if (kind === 'save') {
          saved = { bytes: await context.saveState(), tokens: [...rules.tokens] }
          expect(saved.bytes.length).toBe(context.stateSize())
        } else if (kind === 'load' && saved) {
          await context.loadState(saved.bytes, saved.tokens)
          rules.reset(saved.tokens)
        } else if (kind === 'keep') {
          kept?.release()
          kept = await context.keep()
        } else if (kind === 'adopt' && kept) {
          logits = await context.adopt(kept)
          rules.reset(kept.tokens)
        } else if (kind === 'max') {
          context.maxCheckpoints = n % 5
          rules.max = n % 5
        }
        await disturbance
        expect(context.tokens, kind).toEqual(rules.tokens)
        expect(context.length).toBe(rules.tokens.length)
        expect(context.checkpoints, kind).toEqual(rules.positions)
        if (logits && rules.tokens.length > 0) same(logits, await freshOnce(rules.tokens), kind)
      }
      for (const { context, rules } of pairs) {
        if (rules.tokens.length < SHORT_CONTEXT) {
          same(await context.evalToken(5), await freshOnce([...rules.tokens, 5]), 'going on')
        }
        await context.close()
      }
      kept?.release()
    }
    await fc.assert(fc.asyncProperty(fc.array(operation, { minLength: 5, maxLength: backend.isSlow ? 12 : 25 }), run), {
      numRuns: isBrief ? 2 : isShort ? 5 : 15,
    })
  })

  /** Evaluates something and goes back, as another conversation would. */
  async function disturb(context: Context, rules: SimpleContext) {
    const { length } = rules.tokens
    if (length >= SHORT_CONTEXT) return
    rules.tokens.push(3)
    rules.rewind(length)
    await context.evalToken(3)
    await context.rewind(length)
  }

  test('at the full context', async () => {
    const tokens = randomTokens(40, SHORT_CONTEXT)
    const context = short.createContext()
    const want = await context.evalPrompt(tokens)
    await context.checkpoint()
    await expect(context.evalToken(1)).rejects.toMatchObject({ code: 'CONTEXT_LIMIT' })
    expect(context.length).toBe(SHORT_CONTEXT)
    same(await context.rewind(SHORT_CONTEXT - 1), await fresh(tokens.slice(0, -1)), 'one back')
    expect(context.checkpoints).toEqual([])
    same(await context.evalToken(tokens.at(-1) as number), want as Float32Array, 'full again')
    await context.close()
  })

  test('restoring twice gives the same, whatever happened between', async () => {
    const tokens = randomTokens(50, isBrief ? 78 : 90)
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 70))
    await context.checkpoint()
    const want = await context.evalPrompt(tokens.slice(70))
    for (const detour of [[1, 2, 3], randomTokens(51, isBrief ? 20 : 60)]) {
      await context.restore(70)
      await context.evalPrompt(detour)
      await context.restore(70)
      same(await context.evalPrompt(tokens.slice(70)), want as Float32Array, 'after a detour')
    }
    await context.close()
  })

  test('a state that two contexts took goes two ways, and stays what it was', async () => {
    const start = randomTokens(55, isBrief ? 20 : 75)
    const steps = isBrief ? 5 : 12
    const ways = [randomTokens(56, steps), randomTokens(57, steps)]
    const wants = [await fresh([...start, ...ways[0]]), await fresh([...start, ...ways[1]])]
    const first = model.createContext()
    await first.evalPrompt(start)
    const kept = await first.keep()
    const contexts = [first, model.createContext()]
    for (let round = 0; round < 2; round++) {
      for (const context of contexts) await context.adopt(kept)
      const last: Float32Array[] = []
      for (let i = 0; i < steps; i++) {
        for (const [which, context] of contexts.entries()) last[which] = await context.evalToken(ways[which][i])
      }
      for (const which of ways.keys()) same(last[which], wants[which], `way ${which}`)
    }
    await contexts[0].close()
    kept.release()
    same(
      await contexts[1].rewind(start.length + 3),
      await fresh([...start, ...ways[1].slice(0, 3)]),
      'with the kept state gone',
    )
    await contexts[1].close()
  })

  test('a checkpoint costs the recurrent state and the newest page, not the sequence', async () => {
    const context = model.createContext()
    await context.evalPrompt(randomTokens(60, isBrief ? 260 : 300)) // more than a page
    const alone = context.memoryBytes
    await context.checkpoint()
    expect(context.memoryBytes - alone).toBeLessThan(alone / 2)
    await context.evalPrompt(randomTokens(61, 10))
    const { numKvHeads, headDim, linearConvDim, linearValueHeads, linearValueDim, linearKeyDim } = model.config
    const recurrent = 3 * 4 * (3 * linearConvDim + linearValueHeads * linearValueDim * linearKeyDim)
    const page = 2 * 4 * numKvHeads * headDim * 256
    expect(context.memoryBytes - alone).toBeLessThanOrEqual(recurrent + 2 * page + 4 * model.vocabSize)
    await context.close()
  })

  test('an abort in the middle of a prompt leaves a token boundary, and nothing else', async () => {
    const count = isBrief ? 100 : 300 // more than a chunk behind the first 30
    const tokens = randomTokens(70, count)
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 30))
    const controller = new AbortController()
    const running = context.evalPrompt(tokens.slice(30), {
      signal: controller.signal,
      onProgress: () => controller.abort(new Error('stopped here')), // after the first chunk
    })
    await expect(running).rejects.toThrow('stopped here')
    expect(context.length).toBeGreaterThan(30)
    expect(context.length).toBeLessThan(count)
    expect(context.tokens).toEqual(tokens.slice(0, context.length))
    const length = context.length
    same(await context.evalPrompt(tokens.slice(length)), await fresh(tokens), 'going on after the abort')
    await context.close()
  })

  test('an abort inside a step leaves the last boundary', async () => {
    const tokens = randomTokens(71, isBrief ? 36 : 60)
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 20))
    for (const delay of [0, 1, 2, 4, 8]) {
      const controller = new AbortController()
      const running = context.evalPrompt(tokens.slice(20), { signal: controller.signal })
      const outcome = running.then(
        () => 'done',
        () => 'aborted',
      )
      setTimeout(() => controller.abort(), delay)
      if ((await outcome) === 'aborted') expect(context.length).toBe(20)
      else await context.rewind(20)
    }
    same(await context.evalPrompt(tokens.slice(20)), await fresh(tokens), 'after aborts')
    await context.close()
  })

  test('a rewind that is aborted leaves the context as it was', async () => {
    const tokens = randomTokens(73, 60)
    const context = model.createContext()
    await context.evalPrompt(tokens.slice(0, 10))
    await context.checkpoint()
    const logits = (await context.evalPrompt(tokens.slice(10, 50))) as Float32Array
    await context.checkpoint()
    for (const delay of [0, 2]) {
      const controller = new AbortController()
      const rewound = context.rewind(40, { signal: controller.signal }).then(
        () => true,
        () => false,
      )
      setTimeout(() => controller.abort(), delay)
      if (await rewound) {
        // Too late: at the target, and only then is the checkpoint past it gone.
        expect([context.length, context.checkpoints]).toEqual([40, [10]])
        same(await context.evalPrompt(tokens.slice(40, 50)), logits, 'back again')
        await context.checkpoint()
      }
      expect([context.tokens, context.checkpoints]).toEqual([tokens.slice(0, 50), [10, 50]])
    }
    same(await context.evalPrompt(tokens.slice(50)), await fresh(tokens), 'going on')
    same(await context.restore(50), logits, 'the checkpoint')
    await context.close()
  })

  test('an abort of one context leaves those that are evaluated with it alone', async () => {
    const [a, b] = [model.createContext(), model.createContext()]
    const tokens = randomTokens(72, isBrief ? 14 : 40)
    await Promise.all([a.evalPrompt(tokens), b.evalPrompt(tokens)])
    const controller = new AbortController()
    const stopped = (async () => {
      for (;;) await a.evalToken(1, { signal: controller.signal })
    })()
    stopped.catch(() => {})
    let logits: Float32Array | null = null
    for (const token of tokens) {
      logits = await b.evalToken(token)
      if (token === tokens[tokens.length / 2]) controller.abort()
    }
    await expect(stopped).rejects.toThrow()
    same(logits, await fresh([...tokens, ...tokens]), 'the one that went on')
    await Promise.all([a.close(), b.close()])
  })
})

/** What the rules say about tokens and checkpoints, told as plainly as possible. */
class SimpleContext {
  tokens: number[] = []
  private saved: { position: number; used: number }[] = []
  private time = 0

  constructor(public max: number) {}

  get positions(): number[] {
    return this.saved.map(({ position }) => position).sort((a, b) => a - b)
  }

  store() {
    const position = this.tokens.length
    this.saved = this.saved.filter(entry => entry.position !== position)
    if (this.max > 0) this.saved.push({ position, used: ++this.time })
    while (this.saved.length > this.max) {
      const others = this.saved.filter(entry => entry.position !== position)
      const first = others.filter(entry => entry.position !== 0)
      const [oldest] = (first.length > 0 ? first : others).sort((a, b) => a.used - b.used)
      this.saved = this.saved.filter(entry => entry !== oldest)
    }
  }

  restore(position: number) {
    this.saved = this.saved.filter(entry => entry.position <= position)
    for (const entry of this.saved) if (entry.position === position) entry.used = ++this.time
    this.tokens = this.tokens.slice(0, position)
  }

  rewind(position: number) {
    if (position === this.tokens.length) return
    const nearest = this.saved.filter(entry => entry.position <= position).sort((a, b) => b.position - a.position)[0]
    if (nearest) nearest.used = ++this.time
    this.saved = this.saved.filter(entry => entry.position <= position)
    this.tokens = this.tokens.slice(0, position)
  }

  reset(tokens: readonly number[]) {
    this.tokens = [...tokens]
    this.saved = []
  }
}
