// Answers that think, call tools and then keep to a grammar: which tokens are allowed when.
import { Ajv2020 } from 'ajv/dist/2020.js'
import { afterAll, describe, expect, test } from 'vitest'
import { AnswerConstraint, type AnswerPlan, type AnswerTokens } from '#moeflux/grammar/answerConstraint.js'
import { ConstraintCompiler } from '#moeflux/grammar/constraint.js'
import type { GrammarSource } from '#moeflux/grammar/source/sourceKinds.js'
import type { ToolSchema } from '#moeflux/grammar/source/toolCallGrammar.js'
import type { Dialect } from '#moeflux/text/dialects/dialect.js'
import { hermes } from '#moeflux/text/dialects/hermes.js'
import { qwen3_5 } from '#moeflux/text/dialects/qwen3_5.js'
import { decodePieces, demoVocabulary } from '../support/models/demoVocabulary.js'
import { allowedTokens, generator } from '../support/randomWalk.js'

const vocabulary = demoVocabulary()
const compiler = new ConstraintCompiler(vocabulary)
afterAll(() => compiler.close())

const [THINK_END, CALL, CALL_END] = [8187, 8188, 8189]
const special = new Map([
  [THINK_END, '</think>'],
  [CALL, '<tool_call>'],
  [CALL_END, '</tool_call>'],
])
const tokens: AnswerTokens = {
  vocabSize: vocabulary.vocabSize,
  stopTokenIds: vocabulary.stopTokenIds,
  thinkOpen: null,
  thinkEnd: THINK_END,
  toolCall: CALL,
  toolCallEnd: CALL_END,
  newlines: [vocabulary.pieces.indexOf('Ċ')],
}
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

/** Random tokens that the constraint allows, until it lets the answer stop. */
async function walk(plan: AnswerPlan, seed: number): Promise<string | null> {
  const random = generator(seed)
  const constraint = new AnswerConstraint(tokens, plan)
  const pieces: string[] = []
  let told: Awaited<ReturnType<AnswerConstraint['maskAfter']>> // of the last token, before it came
  for (let step = 0; step < 400; step++) {
    const mask = await constraint.mask()
    if (told !== undefined) expect(told, `after ${pieces.join('')}`).toEqual(mask)
    const ids = mask === null ? [CALL, ...vocabulary.stopTokenIds] : allowedTokens(mask, vocabulary.vocabSize)
    expect(ids.length, `dead end after ${pieces.join('')}`).toBeGreaterThan(0)
    const stop = ids.some(id => vocabulary.stopTokenIds.includes(id))
    const rest = ids.filter(id => !vocabulary.stopTokenIds.includes(id))
    if (stop && (rest.length === 0 || random() < 0.5)) return decodePieces(pieces)
    // Close strings early, and leave thinking after a while.
    const closing = rest.filter(id => ['"', '}', '</think>'].includes(special.get(id) ?? vocabulary.pieces[id]))
    const pool =
      closing.length > 0 && random() < 0.3
        ? closing
        : rest.filter(id => vocabulary.pieces[id] !== '' || special.has(id))
    const token = pool[Math.floor(random() * pool.length)]
    told = step % 2 === 0 ? await constraint.maskAfter([token]) : undefined
    pieces.push(special.get(token) ?? vocabulary.pieces[token])
    constraint.accept(token)
  }
  return null
}

const calls = (tools: readonly ToolSchema[], { call }: Dialect): GrammarSource => ({
  kind: 'tool_call',
  tools,
  form: call,
  marks: {},
})
const none: AnswerPlan = {
  insideThinking: false,
  mayThink: false,
  text: null,
  call: null,
  calls: 'none',
  parallelCalls: true,
}

describe('answers under a constraint', () => {
  test('tells what may follow tokens that have not come yet, and stays where it is', async () => {
    const constraint = await compiler.open({ kind: 'ebnf', text: 'root ::= "ab" | "ac" [0-9]' })
    const [a, b, c] = ['a', 'b', 'c'].map(piece => vocabulary.pieces.indexOf(piece))
    const ids = async (mask: Promise<Uint32Array | null | undefined>) =>
      allowedTokens((await mask)!, vocabulary.vocabSize)
    expect(await ids(constraint.maskAfter!([a]))).toEqual(expect.arrayContaining([b, c]))
    expect(await ids(constraint.maskAfter!([a, b]))).toEqual([...vocabulary.stopTokenIds].sort())
    expect(await ids(constraint.maskAfter!([a, c])), 'ten digits').toHaveLength(10)
    expect(await constraint.maskAfter!([b]), 'what may not come').toBeUndefined()
    expect(await ids(constraint.mask())).toContain(a)
    constraint.accept(a)
    expect(await ids(constraint.maskAfter!([c]))).toHaveLength(10)
    constraint.close()
  })

  test('required tool calls parse, name a tool and fit its schema, in both forms', async () => {
    const ajv = new Ajv2020()
    const validate = new Map([weather, dice].map(tool => [tool.name, ajv.compile(tool.parameters as object)]))
    let made = 0
    for (const dialect of [hermes, qwen3_5]) {
      const grammar = calls([weather, dice], dialect)
      const plan: AnswerPlan = { ...none, call: () => compiler.open(grammar), calls: 'required' }
      for (let seed = 1; seed <= 12; seed++) {
        const text = await walk(plan, seed)
        if (text === null) continue
        const splitter = dialect.createSplitter({
          parameterType: (_tool, name) => (name === 'city' ? 'string' : 'integer'),
        })
        const events = [...splitter.push(text), ...splitter.end()]
        expect(events.length, text).toBeGreaterThan(0)
        for (const event of events) {
          if (event.type !== 'toolCall') throw new Error(`${event.type} in ${text}`)
          const check = validate.get(event.name)!
          expect(check(JSON.parse(event.arguments)), `${text}: ${ajv.errorsText(check.errors)}`).toBe(true)
          made++
        }
      }
    }
    expect(made).toBeGreaterThan(10)
  })

  test('one call at most where parallel calls are off', async () => {
    const grammar = calls([dice], hermes)
    const plan: AnswerPlan = { ...none, call: () => compiler.open(grammar), calls: 'required', parallelCalls: false }
    for (let seed = 1; seed <= 5; seed++) expect((await walk(plan, seed))?.split('<tool_call>').length ?? 2).toBe(2)
  })

  test('thinking is free, cannot stop the answer, and JSON follows it', async () => {
    const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] }
    const grammar: GrammarSource = { kind: 'json_schema', schema }
    const plan: AnswerPlan = { ...none, insideThinking: true, text: () => compiler.open(grammar) }
    for (let seed = 1; seed <= 5; seed++) {
      const text = await walk(plan, seed)
      if (text === null) continue
      expect(JSON.parse(text.split('</think>')[1])).toHaveProperty('ok')
    }
    const constraint = new AnswerConstraint(tokens, plan)
    const thinking = allowedTokens((await constraint.mask())!, vocabulary.vocabSize)
    expect(thinking.length).toBe(vocabulary.vocabSize - vocabulary.stopTokenIds.length)
  })

  test('thinking may be opened by the model where the prompt asks for it, and JSON follows', async () => {
    const grammar: GrammarSource = { kind: 'json_object' }
    const plan: AnswerPlan = { ...none, text: () => compiler.open(grammar) }
    const open = vocabulary.pieces.indexOf('Q')
    const opening = { ...tokens, thinkOpen: open }
    for (const mayThink of [true, false]) {
      const constraint = new AnswerConstraint(opening, { ...plan, mayThink })
      expect(allowedTokens((await constraint.mask())!, vocabulary.vocabSize).includes(open)).toBe(mayThink)
      constraint.close()
    }
    const constraint = new AnswerConstraint(opening, { ...plan, mayThink: true })
    for (const token of [open, open, THINK_END]) constraint.accept(token)
    const after = allowedTokens((await constraint.mask())!, vocabulary.vocabSize)
    expect(after).toContain(vocabulary.pieces.indexOf('{'))
    expect(after).not.toContain(open)
    constraint.close()
  })

  test('free text with strict calls in it', async () => {
    const plan: AnswerPlan = { ...none, call: () => compiler.open(calls([dice], hermes)), calls: 'allowed' }
    const constraint = new AnswerConstraint(tokens, plan)
    expect(await constraint.mask()).toBeNull()
    constraint.accept(vocabulary.pieces.indexOf('H'))
    expect(await constraint.mask()).toBeNull()
    constraint.accept(CALL)
    const inCall = allowedTokens((await constraint.mask())!, vocabulary.vocabSize)
    expect(inCall).toEqual([vocabulary.pieces.indexOf('Ċ')])
    constraint.close()
  })
})
