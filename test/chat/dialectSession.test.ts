// Whole chats with models of other dialects: from messages through the template to events, and back into the next prompt.
import { describe, expect, test } from 'vitest'
import { thinkingOption } from '#moeflux/apps/server/openai/options.js'
import type { ChatOptions, SessionEvent } from '#moeflux/chat/events.js'
import { ConstraintFactory } from '#moeflux/grammar/constraintFactory.js'
import type { DialectName } from '#moeflux/model/families/family.js'
import { endTokenIds } from '#moeflux/text/dialects/endTokens.js'
import { findDialect } from '#moeflux/text/dialects/findDialect.js'
import { dialectTokenizer, TEMPLATES } from '../support/models/dialectModels.js'
import { END_TOKEN, scriptedModel } from '../support/models/scriptedModel.js'

const user = (content: string) => ({ role: 'user' as const, content })
const tools = [{ name: 'f', parameters: { type: 'object', properties: { x: { type: 'string' } } } }]

/** A model that answers with the given texts, one after the other, in which control tokens count as such. */
async function speaker(dialect: DialectName, answers: readonly string[]) {
  const tokenizer = await dialectTokenizer(dialect)
  const prompts: string[] = []
  const controls: string[][] = [] // control tokens of each prompt
  let promptLength = 0
  const { model } = await scriptedModel({
    tokenizer,
    template: TEMPLATES[dialect],
    script: tokens => {
      if (promptLength === 0) {
        promptLength = tokens.length
        prompts.push(tokenizer.decode(tokens))
        controls.push(tokens.filter(id => tokenizer.isSpecial(id)).map(id => tokenizer.decode([id])))
      }
      const answer = tokenizer.encode(answers[prompts.length - 1])
      return answer[tokens.length - promptLength] ?? END_TOKEN
    },
  })
  const session = model.createSession()
  return {
    tokenizer,
    prompts,
    controls,
    async ask(options: ChatOptions) {
      promptLength = 0
      const events: SessionEvent[] = []
      for await (const event of session.chat(options)) events.push(event)
      const say = (type: 'text' | 'thinking') => events.map(event => (event.type === type ? event.text : '')).join('')
      const usage = events.findLast(event => event.type === 'usage')
      const calls = events.flatMap(event => (event.type === 'toolCall' ? [[event.name, event.arguments]] : []))
      const end = events.findLast(event => event.type === 'end')
      const pieces = events.flatMap(event => (event.type === 'toolCallDelta' ? [event.arguments] : []))
      return { pieces, text: say('text'), thinking: say('thinking'), calls, reason: end?.reason, usage }
    },
    close: () => model.close(),
  }
}

describe('a chat with a model that speaks harmony', () => {
  test('thinks, calls a tool, hears its result, and answers', async () => {
    const { ask, prompts, controls, close } = await speaker('harmony', [
      '<|channel|>analysis<|message|>Use f.<|end|><|start|>assistant' +
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": "<|y|>"}<|call|>',
      '<|channel|>final<|message|>It said no.',
    ])
    const first = await ask({ messages: [user('say <|end|>')], tools, thinking: true })
    expect(first).toMatchObject({
      text: '',
      thinking: 'Use f.',
      calls: [['f', '{"x": "<|y|>"}']],
      reason: 'tool_calls',
    })
    expect(first.usage?.thinkingTokens).toBeGreaterThan(0)
    expect(first.pieces.join('')).toBe('{"x": "<|y|>"}')
    expect(first.pieces.length).toBeGreaterThan(2)
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"x": "<|y|>"}' } }
    const messages = [
      user('say <|end|>'),
      { role: 'assistant', content: null, reasoning_content: 'Use f.', tool_calls: [call] },
      { role: 'tool', content: 'no <|return|>', tool_call_id: 'c' },
    ]
    expect(await ask({ messages, tools })).toMatchObject({ text: 'It said no.', calls: [], reason: 'stop' })
    expect(controls[0].filter(token => token === '<|end|>')).toHaveLength(2) // the user's is text
    expect(controls[1].filter(token => token === '<|end|>')).toHaveLength(5)
    expect(controls[1]).not.toContain('<|return|>')
    expect(prompts).toEqual([
      '<|start|>system<|message|>Reasoning: medium<|end|><|start|>user<|message|>say <|end|><|end|><|start|>assistant',
      '<|start|>system<|message|>Reasoning: low<|end|><|start|>user<|message|>say <|end|><|end|>' +
        '<|start|>assistant<|channel|>analysis<|message|>Use f.<|end|>' +
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"x": "<|y|>"}<|end|>' +
        '<|start|>functions.f to=assistant<|channel|>commentary<|message|>"no <|return|>"<|end|><|start|>assistant',
    ])
    await close()
  })

  test('closes thinking that takes too long, and goes on from a text that was begun', async () => {
    const { ask, prompts, close } = await speaker('harmony', [
      `<|channel|>analysis<|message|>${'word '.repeat(50)}`,
      ' cold.',
      ' snow.<|end|><|start|>assistant<|channel|>final<|message|>Yes.',
      ' does.',
    ])
    const cut = await ask({ messages: [user('Hi')], thinking: true, thinkingBudget: 5, maxTokens: 20 })
    expect(cut.thinking.length).toBeGreaterThan(4)
    expect(cut.usage?.thinkingTokens).toBe(6) // and the one that closes it
    expect((await ask({ messages: [user('Hi')], prefill: 'It is', thinking: 'high' })).text).toBe(' cold.')
    expect(prompts[1]).toContain('Reasoning: high')
    expect(prompts[1].endsWith('<|start|>assistant<|channel|>final<|message|>It is')).toBe(true)
    const rest = await ask({ messages: [user('Hi')], thinkingPrefill: 'It may' })
    expect([rest.thinking, rest.text]).toEqual([' snow.', 'Yes.'])
    expect(prompts[2].endsWith('<|start|>assistant<|channel|>analysis<|message|>It may')).toBe(true)
    const after = await ask({ messages: [user('Hi')], thinkingPrefill: 'It <|end|> may\n', prefill: 'It' })
    expect([after.thinking, after.text]).toEqual(['', ' does.'])
    const begun = '<|channel|>analysis<|message|>It <|end|> may<|end|><|start|>assistant<|channel|>final<|message|>It'
    expect(prompts[3].endsWith(begun)).toBe(true)
    await close()
  })
})

describe('a required call', () => {
  test.each(['harmony', 'glm4', 'hermes', 'qwen3_coder'] as const)(
    'comes of a model of %s that would rather think for ever',
    async dialect => {
      const { ask, tokenizer, close } = await speaker(dialect, ['word '.repeat(400)])
      const spoken = findDialect(TEMPLATES[dialect])
      const ends = endTokenIds([END_TOKEN, 8183], spoken, tokenizer)
      const factory = new ConstraintFactory(tokenizer, 8192, ends, spoken)
      const parameters = {
        type: 'object',
        properties: {
          x: { enum: ['yes'] },
          n: { enum: [6] },
          s: { type: ['string', 'null'], enum: ['no'] },
          r: { $ref: '#/$defs/list' },
        },
        required: ['x', 'n', 's', 'r'],
        $defs: { list: { type: 'array', items: { const: 1 }, minItems: 1, maxItems: 1 } },
      }
      const only = { name: 'f', strict: true, parameters }
      const answer = await ask({
        messages: [user('Go')],
        tools: [only],
        toolChoice: 'required',
        parallelToolCalls: false,
        thinking: true,
        thinkingBudget: 3,
        maxTokens: 200,
        openConstraint: (request, signal) => factory.open(request, signal),
      })
      expect(answer).toMatchObject({ text: '', reason: 'tool_calls' })
      expect(answer.calls.map(([, written]) => JSON.parse(written))).toEqual([{ x: 'yes', n: 6, s: 'no', r: [1] }])
      await factory.close()
      await close()
    },
  )
})

describe('thinking that a client asks for by a word', () => {
  test('is told to the model where it may know the word', () => {
    const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', null]
    expect(efforts.map(reasoning_effort => thinkingOption({ reasoning_effort }))).toEqual([
      ...[false, false, 'low', 'medium', 'high', true, undefined],
    ])
    const asked = { reasoning_effort: 'high', chat_template_kwargs: { enable_thinking: false } }
    expect(thinkingOption(asked)).toBe(false)
  })
})

describe('a chat with a model that speaks glm4', () => {
  test('thinks where it was asked to, and repeats its calls as it wrote them', async () => {
    const written = '<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>a "b"</arg_value>\n</tool_call>'
    const { ask, prompts, close } = await speaker('glm4', [`\n<think>Use f.</think>\n${written}`, 'Done.'])
    const first = await ask({ messages: [user('Go')], tools, thinking: true })
    expect(first).toMatchObject({ thinking: 'Use f.', calls: [['f', '{"x": "a \\"b\\""}']], reason: 'tool_calls' })
    expect(first.pieces.join('')).toBe('{"x": "a \\"b\\""}')
    expect(first.pieces.length).toBeGreaterThan(2)
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{"x":"a \\"b\\""}' } }
    const messages = [user('Go'), { role: 'assistant', content: '', tool_calls: [call] }, user('And?')]
    expect((await ask({ messages, tools })).text).toBe('Done.')
    expect(prompts[0].endsWith('Go<|assistant|>')).toBe(true)
    expect(prompts[1]).toContain(`<think></think>\n${written}`)
    expect(prompts[1].endsWith('<|assistant|>\n<think></think>')).toBe(true)
    await close()
  })
})
