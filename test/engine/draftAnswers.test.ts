// Guessing ahead, without a real model: answers are the same with any number of guesses, whatever becomes of them; what is sampled is
// distributed as without.
import { describe, expect, test } from 'vitest'
import { ExpertReadError, OutOfMemoryError } from '#moeflux/base/errors.js'
import type { ChatOptions, SessionEvent, Usage } from '#moeflux/chat/events.js'
import type { Drafts } from '#moeflux/engine/draftGovernor.js'
import { GuessChooser } from '#moeflux/text/sampling/draftSampler.js'
import { Sampler, type SamplerOptions } from '#moeflux/text/sampling/sampler.js'
import { answering, scriptedModel } from '../support/models/scriptedModel.js'
import { seededRandom } from '../support/random.js'
import { demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const story = 'Once upon a time there was a little girl named Lily. She had a red ball.'

/** Wrong at every `wrongAt`th position. */
const open = (drafts: Drafts, wrongAt: number, answer = story) => {
  const script = answering(tokenizer, () => answer)
  const guess = (tokens: readonly number[]) => (tokens.length % wrongAt === 0 ? 300 : script(tokens))
  return scriptedModel({ script, guess, drafts })
}

async function answerOf(
  drafts: Drafts,
  wrongAt: number,
  options: Partial<ChatOptions>,
  text?: string,
): Promise<{ usage: Usage; events: SessionEvent[]; evaluated: number }> {
  const { model, evaluated } = await open(drafts, wrongAt, text)
  const events: SessionEvent[] = []
  for await (const event of model.stream({ prompt: 'Hello', ...options })) events.push(event)
  await model.close()
  return { usage: events.findLast(event => event.type === 'usage')!, events, evaluated: evaluated() }
}

const withoutTimes = ({ usage, events, evaluated }: Awaited<ReturnType<typeof answerOf>>) => {
  const pieces = events.filter(({ type }) => type !== 'usage')
  return { tokens: usage.answerTokens, thought: usage.thinkingTokens, pieces, evaluated }
}

describe('an answer is the same, and as much of it is evaluated, with any number of guesses', () => {
  const cases: readonly [string, Partial<ChatOptions>, string?][] = [
    ['to its end', {}],
    ['up to a limit', { maxTokens: 7 }],
    ['of one token', { maxTokens: 1 }],
    ['up to a stop sequence', { stop: ['girl named'] }],
    ['with a seed', { temperature: 1, seed: 4 }],
    ['with penalties', { repetitionPenalty: 1.2, presencePenalty: 0.4, frequencyPenalty: 0.3 }],
    ['with likelihoods', { logprobs: 2 }],
    ['with thinking that is cut short', { thinking: true, thinkingBudget: 4 }, `I think so.\n</think>\n\n${story}`],
  ]
  test.each(cases)('%s', async (_, options, text) => {
    const plain = withoutTimes(await answerOf(0, 3, options, text))
    for (const drafts of [1, 3, 'auto'] as const) {
      for (const wrongAt of [1, 3, 1000]) {
        expect(withoutTimes(await answerOf(drafts, wrongAt, options, text))).toEqual(plain)
      }
    }
  })

  test('and usage tells of guesses', async () => {
    const all = await answerOf(3, 1000, { maxTokens: 9 })
    expect(all.usage.drafts).toEqual({ accepted: 6, rejected: 0 })
    expect((await answerOf(2, 1, { maxTokens: 9 })).usage.drafts).toEqual({ accepted: 0, rejected: 13 })
    expect((await answerOf(0, 1, {})).usage.drafts).toBeUndefined()
  })

  test.each([
    ['one guess where it cannot look ahead', false, 2],
    ['as many as fit where it can', true, 3],
  ])('a grammar has its say: %s, of what it allows', async (_, looksAhead, accepted) => {
    const allowed = [...tokenizer.encode('Once upon a time')]
    const seen: number[] = []
    const openConstraint = async () => {
      let at = 0
      const maskAt = (place: number) => {
        const mask = new Uint32Array(256)
        const token = allowed[place] ?? 8185
        mask[token >> 5] |= 1 << (token & 31)
        return mask
      }
      return {
        async mask() {
          return maskAt(at)
        },
        ...(looksAhead && { maskAfter: async (tokens: readonly number[]) => maskAt(at + tokens.length) }),
        accept(token: number) {
          seen.push(token)
          at++
        },
        close() {},
      }
    }
    const { usage, events } = await answerOf(3, 1, { openConstraint })
    expect(events.flatMap(event => (event.type === 'text' ? event.text : [])).join('')).toBe('Once upon a time')
    expect(seen).toEqual([...allowed, 8185])
    expect(usage.drafts, 'what is forbidden was not guessed').toEqual({ accepted, rejected: 0 })
  })

  test.each([
    ['a head whose expert cannot be read', () => new ExpertReadError(8, 3, 'layer_08.bin', 0, 'EIO')],
    ['guesses that find no memory', () => new OutOfMemoryError('wasm', 1, 'full')],
  ])('%s: the answer goes on without, and tries no more', async (_, failure) => {
    const script = answering(tokenizer, () => story)
    let tries = 0
    const guess = (tokens: readonly number[]) => {
      if (++tries > 5) throw failure()
      return script(tokens)
    }
    const { model } = await scriptedModel({ script, guess, drafts: 2 })
    let text = ''
    for await (const event of model.stream({ prompt: 'Hello' })) if (event.type === 'text') text += event.text
    await model.close()
    expect(text).toBe(story)
    expect(tries).toBe(6)
  })

  test('a choice that fails ends the answer with its error, and the context stands where it was evaluated', async () => {
    const { model } = await open(2, 1000)
    const context = model.createContext()
    await context.evalPrompt([1, 2, 3])
    const keep = () => {
      throw new Error('no choice')
    }
    await expect(context.evalGuesses([4, 5, 6], { output: 'all', keep })).rejects.toThrow('no choice')
    expect(context.tokens).toEqual([1, 2, 3, 4])
    expect(await context.evalGuesses([5, 6, 7], { output: 'argmax', keep: () => 2 })).toBe(2)
    expect(context.tokens).toEqual([1, 2, 3, 4, 5, 6])
    await model.close()
  })
})

describe('what is sampled', () => {
  const random = seededRandom(3)
  const vocab = 24
  const logitsOf = (spread: number) => Float32Array.from({ length: vocab }, () => (random() - 0.5) * spread)
  const head = logitsOf(6)
  const model = head.map(logit => logit + (random() - 0.5) * 3)
  const mask = Uint32Array.of(0x00ffff0f)

  const partly = head.map((logit, token) => (token < 9 || token === 20 ? logit : -Infinity))

  const cases: readonly [string, SamplerOptions, Uint32Array | null, Float32Array?][] = [
    ['at temperature 1', {}, null],
    ['by guesses from a part of the vocabulary', {}, null, partly],
    ['with top-k, top-p, min-p and a temperature', { topK: 9, topP: 0.9, minP: 0.02, temperature: 1.3 }, null],
    ['with a grammar and biases', { logitBias: new Map([[3, 2]]) }, mask],
  ]
  test.each(cases)('%s is distributed as without guesses', (_, options, allowed, known = head) => {
    const draws = 20_000
    const sampler = new Sampler(options)
    const chooser = new GuessChooser(sampler)
    const counts = new Float64Array(vocab)
    let right = 0
    for (let i = 0; i < draws; i++) {
      chooser.begin()
      const guess = chooser.guess(known, allowed)
      const token = chooser.choose(model, 0, allowed)
      counts[token]++
      if (token === guess) right++
    }
    const shares = (logits: Float32Array) => {
      const { tokens, weights } = new Sampler(options).weigh(logits, allowed)
      const total = weights.reduce((a, b) => a + b)
      const all = new Float64Array(vocab)
      tokens.forEach((token, i) => {
        all[token] = weights[i] / total
      })
      return all
    }
    const [p, q] = [shares(model), shares(known)]
    let chi = 0
    let freedom = -1
    p.forEach((share, token) => {
      if (share === 0) {
        expect(counts[token]).toBe(0)
        return
      }
      freedom++
      chi += (counts[token] - share * draws) ** 2 / (share * draws)
    })
    expect(chi, `chi-squared with ${freedom} degrees of freedom`).toBeLessThan(freedom + 5 * Math.sqrt(2 * freedom))
    const overlap = p.reduce((sum, share, token) => sum + Math.min(share, q[token]), 0)
    expect(right / draws, 'as many guesses stay as can').toBeCloseTo(overlap, 1)
  })

  test('is not guessed where the head has left out all that a grammar allows', () => {
    for (const options of [{}, { temperature: 0 }, { seed: 3, topK: 4 }]) {
      const chooser = new GuessChooser(new Sampler(options))
      chooser.begin()
      expect(chooser.guess(partly, Uint32Array.of(0x00e00000))).toBeNull()
      expect(chooser.choose(model, 0, Uint32Array.of(0x00200000))).toBe(21)
    }
  })

  test('penalties count guesses before the one that is made', () => {
    const chooser = new GuessChooser(new Sampler({ temperature: 0, presencePenalty: 50 }))
    chooser.begin()
    const first = chooser.guess(head)
    expect(chooser.guess(head)).not.toBe(first)
    chooser.begin()
    expect(chooser.guess(head), 'nothing of guesses stays that were not taken').toBe(first)
  })

  test('with a seed is the very same as without guesses', () => {
    const options = { temperature: 0.9, topP: 0.95, repetitionPenalty: 1.3, seed: 11 }
    const plain = new Sampler(options)
    const sampler = new Sampler(options)
    const chooser = new GuessChooser(sampler)
    for (let i = 0; i < 200; i++) {
      chooser.begin()
      for (let guess = 0; guess < i % 4; guess++) chooser.guess(head)
      expect(chooser.choose(model, 0)).toBe(plain.sample(model))
    }
  })
})
