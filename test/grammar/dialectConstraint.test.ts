// Guaranteed answers in each dialect: whatever tokens a model takes of those it may, the answer is what was asked for.
import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TokenConstraint } from '#moeflux/grammar/constraint.js'
import { type AnswerRequest, ConstraintFactory } from '#moeflux/grammar/constraintFactory.js'
import type { ToolSchema } from '#moeflux/grammar/source/toolCallGrammar.js'
import type { SplitEvent } from '#moeflux/text/answer/splitter.js'
import { endTokenIds } from '#moeflux/text/dialects/endTokens.js'
import { DIALECTS } from '#moeflux/text/dialects/findDialect.js'
import type { Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { dialectTokenizer } from '../support/models/dialectModels.js'
import { allowedTokens, generator } from '../support/randomWalk.js'

const STOPS = [8183, 8185]
const VOCABULARY = 8192
const weather: ToolSchema = {
  name: 'get_weather',
  strict: true,
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string', minLength: 1, maxLength: 9 },
      days: { type: 'integer', minimum: 1, maximum: 7 },
    },
    required: ['city', 'days'],
    additionalProperties: false,
  },
}
const dice: ToolSchema = { name: 'roll_dice', parameters: { type: 'object', properties: { sides: { enum: [6, 20] } } } }
const verdict = {
  type: 'object',
  properties: { ok: { type: 'boolean' } },
  required: ['ok'],
  additionalProperties: false,
}
const ajv = new Ajv2020()
const valid = new Map([weather, dice].map(tool => [tool.name, ajv.compile(tool.parameters as object)]))

describe.each(DIALECTS)('$name', dialect => {
  let tokenizer: Tokenizer
  let factory: ConstraintFactory
  let ends: ReadonlySet<number>
  let tags: ReadonlySet<number>
  let closers: ReadonlySet<number>
  beforeAll(async () => {
    tokenizer = await dialectTokenizer(dialect.name)
    ends = new Set(endTokenIds(STOPS, dialect, tokenizer))
    const ids = Array.from({ length: VOCABULARY }, (_, id) => id)
    tags = new Set(tokenizer.addedTokens.map(({ id }) => id))
    closers = new Set(ids.filter(id => /^["}<]/.test(tokenizer.decode([id]))))
    factory = new ConstraintFactory(tokenizer, VOCABULARY, [...ends], dialect)
  })
  afterAll(() => factory.close())

  const parameterType = (_tool: string, name: string) => (name === 'city' ? 'string' : 'integer')

  /** Random tokens that the constraint allows, split as they come; null where they did not come to an end. */
  async function answer(request: AnswerRequest, seed: number): Promise<{ events: SplitEvent[]; text: string } | null> {
    const random = generator(seed)
    const constraint = (await factory.open(request)) as TokenConstraint
    const splitter = dialect.createSplitter({ parameterType, insideThinking: request.insideThinking })
    const detokenizer = tokenizer.createDetokenizer({ skipSpecial: true })
    const events: SplitEvent[] = []
    const taken: number[] = []
    try {
      for (let step = 0; step < 300; step++) {
        const mask = await constraint.mask()
        const ids = allowedTokens(mask as Uint32Array, VOCABULARY)
        expect(ids.length, `dead end after ${tokenizer.decode(taken)}`).toBeGreaterThan(0)
        const rest = ids.filter(id => !ends.has(id))
        if (rest.length < ids.length && (rest.length === 0 || random() < 0.7)) {
          return { events: [...events, ...splitter.end()], text: tokenizer.decode(taken) }
        }
        // Tags and what closes JSON come sooner than at random.
        const early = [tags, closers].map(set => rest.filter(id => set.has(id)))
        const pool = early.find(some => some.length > 0 && random() < 0.4) ?? rest
        const token = pool[Math.floor(random() * pool.length)]
        taken.push(token)
        constraint.accept(token)
        const piece = detokenizer.push(token)
        events.push(...(tokenizer.isSpecial(token) ? splitter.mark(tokenizer.decode([token])) : splitter.push(piece)))
      }
      return null
    } finally {
      constraint.close()
    }
  }

  test('makes required calls that fit their schema', async () => {
    let made = 0
    for (let seed = 1; seed <= 4; seed++) {
      const result = await answer({ tools: [weather, dice], toolChoice: 'required' }, seed)
      if (result === null) continue
      const calls = result.events.filter(event => event.type !== 'thinking')
      expect(calls.length, result.text).toBeGreaterThan(0)
      for (const call of calls) {
        if (call.type !== 'toolCall') throw new Error(`${call.type} in ${result.text}`)
        expect(valid.get(call.name)?.(JSON.parse(call.arguments)), result.text).toBe(true)
        made++
      }
    }
    expect(made).toBeGreaterThan(1)
  })

  test('calls the tool that was named', async () => {
    const result = await answer({ tools: [weather, dice], toolChoice: { name: 'roll_dice' } }, 3)
    const calls = result?.events.filter(event => event.type === 'toolCall')
    expect(calls?.map(({ name }) => name)).toEqual(['roll_dice'])
  })

  test('answers in JSON of a schema', async () => {
    let made = 0
    for (let seed = 1; seed <= 2; seed++) {
      const result = await answer({ responseFormat: { type: 'json_schema', schema: verdict } }, seed)
      if (result === null) continue
      const text = result.events.map(event => (event.type === 'text' ? event.text : '')).join('')
      expect(JSON.parse(text)).toHaveProperty('ok')
      made++
    }
    expect(made).toBeGreaterThan(0)
  })

  test('goes on with raw text without anything around it', async () => {
    const constraint = (await factory.open({ responseFormat: { type: 'json_object' }, isRaw: true })) as TokenConstraint
    const first = allowedTokens((await constraint.mask()) as Uint32Array, VOCABULARY)
    expect(first.every(id => tokenizer.decode([id]).startsWith('{'))).toBe(true)
    constraint.close()
  })
})
