// Conversations on the demo model: that a reused state gives the very answer that a fresh evaluation gives, and that
// nothing is evaluated twice, within a session and across a restart.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { Usage } from '#moeflux/chat/events.js'
import { openModel } from '#moeflux/chat/openModel.js'
import type { ChatMessage } from '#moeflux/text/template/messages.js'
import { demoModel } from '../support/models/models.js'

const store = mkdtempSync(join(tmpdir(), 'moeflux-session-'))
afterAll(() => rmSync(store, { recursive: true, force: true }))

const questions = ['Hi', 'Why?', 'And then?', 'More', 'Who?', 'Where?', 'Really?', 'When?', 'How?', 'Oh', 'No', 'Bye']
const TAIL = 4 // `<think>\n\n</think>\n\n`, which opens an answer and is not repeated in the history

describe('a conversation of twelve turns', () => {
  const messages: ChatMessage[] = [{ role: 'system', content: 'You tell stories.' }]
  const usages: Usage[] = []
  const answers: string[] = []

  async function turns(from: number, to: number): Promise<void> {
    const model = await openModel(demoModel, { threads: 1 })
    const session = model.createSession({ store })
    for (let turn = from; turn < to; turn++) {
      messages.push({ role: 'user', content: questions[turn] })
      const before = model.stats().tokens
      const { text, usage } = await session.chat({ messages, maxTokens: 3, temperature: 0 }).answer()
      // The last token of an answer is never evaluated, unless the model ended it by itself.
      const evaluated = model.stats().tokens - before
      expect(evaluated).toBeGreaterThanOrEqual(usage.newTokens + usage.answerTokens - 1)
      expect(evaluated).toBeLessThanOrEqual(usage.newTokens + usage.answerTokens)
      messages.push({ role: 'assistant', content: text })
      usages.push(usage)
      answers.push(text)
    }
    await model.close()
  }

  test('evaluates only what is new in each turn, before and after a restart', async () => {
    await turns(0, 7)
    await turns(7, 12)
    expect(usages[0].cachedTokens).toBe(0)
    for (let turn = 1; turn < 12; turn++) {
      expect(usages[turn].cachedTokens).toBe(usages[turn - 1].promptTokens - TAIL)
    }
  })

  test('reuses exactly up to an edit, and answers as if nothing had been reused', async () => {
    const model = await openModel(demoModel, { threads: 1 })
    const session = model.createSession({ store })
    const full = messages.slice(0, -1)
    const cached = await session.chat({ messages: full, maxTokens: 3, temperature: 0, logprobs: 3 }).answer()
    expect(cached.text).toBe(answers[11])
    expect(cached.usage.cachedTokens).toBe(usages[11].promptTokens - TAIL)

    const fresh = model.createSession()
    const plain = await fresh.chat({ messages: full, maxTokens: 3, temperature: 0 }).answer()
    expect(plain).toMatchObject({ text: cached.text, usage: { cachedTokens: 0, newTokens: usages[11].promptTokens } })

    const edited = [...full.slice(0, -1), { role: 'user', content: 'Goodbye' }]
    const { usage } = await fresh.chat({ messages: edited, maxTokens: 1, temperature: 0 }).answer()
    const tail = model.tokenizer!.encode('\nBye<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n').length
    expect(usage.cachedTokens).toBe(usages[11].promptTokens - tail)
    await model.close()
  })

  test('interleaves several conversations without mixing them', async () => {
    const model = await openModel(demoModel, { threads: 1 })
    const session = model.createSession()
    const ask = (name: string) =>
      session
        .chat({ messages: [{ role: 'user', content: `A story of ${name}` }], maxTokens: 4, temperature: 0 })
        .answer()
    const together = await Promise.all(['Mia', 'Tom', 'Lily'].map(ask))
    const alone = model.createSession()
    for (const [i, name] of ['Mia', 'Tom', 'Lily'].entries()) {
      const messages = [{ role: 'user', content: `A story of ${name}` }]
      const { text } = await alone.chat({ messages, maxTokens: 4, temperature: 0 }).answer()
      expect(together[i].text).toBe(text)
    }
    await model.close()
  })
})

describe('an answer of a given form', () => {
  test('is JSON of the schema, or the call that is asked for', async () => {
    const model = await openModel(demoModel, { threads: 1 })
    const schema = {
      type: 'object',
      properties: { name: { enum: ['Mia', 'Tom'] }, age: { type: 'integer', minimum: 1, maximum: 9 } },
      required: ['name', 'age'],
      additionalProperties: false,
    }
    const { text } = await model.generate({
      prompt: 'Who?',
      responseFormat: { type: 'json_schema', schema },
      temperature: 1.5,
    })
    expect(JSON.parse(text)).toEqual({ name: expect.stringMatching(/^(Mia|Tom)$/), age: expect.any(Number) })
    const { toolCalls, reason } = await model.generate({
      prompt: 'Hi',
      tools: [{ name: 'roll_dice', parameters: { type: 'object', properties: {}, additionalProperties: false } }],
      toolChoice: { name: 'roll_dice' },
    })
    expect(reason).toBe('tool_calls')
    expect(toolCalls).toEqual([{ id: expect.any(String), name: 'roll_dice', arguments: '{}' }])
    await model.close()
  })
})
