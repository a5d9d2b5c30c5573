// Sessions over a scripted model: events, the prefix cache, requests that end early or cannot be answered.
import { describe, expect, test, vi } from 'vitest'
import { OutOfMemoryError } from '#moeflux/base/errors.js'
import type { Answer, ChatOptions, SessionEvent } from '#moeflux/chat/events.js'
import type { ChatMessage } from '#moeflux/text/template/messages.js'
import { answering, END_TOKEN, type ScriptedOptions, scriptedModel } from '../support/models/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const hello: ChatMessage[] = [{ role: 'user', content: 'Hello there' }]
const user = (content: string): ChatMessage => ({ role: 'user', content })

const open = (answer: (prompt: string) => string | readonly number[], options: Partial<ScriptedOptions> = {}) =>
  scriptedModel({ script: answering(tokenizer, answer), ...options })

async function collect(events: AsyncIterable<SessionEvent>): Promise<SessionEvent[]> {
  const all: SessionEvent[] = []
  for await (const event of events) all.push(event)
  return all
}

describe('events', () => {
  test('stream text, usage and the end', async () => {
    const { model } = await open(() => 'Once upon a time.')
    const session = model.createSession()
    const events = await collect(session.chat({ messages: hello }))
    expect(events.map(event => event.type)).toEqual(['usage', 'text', 'text', 'text', 'text', 'text', 'usage', 'end'])
    expect(events.filter(event => event.type === 'text').map(event => event.text)).toEqual([
      'Once',
      ' upon',
      ' a',
      ' time',
      '.',
    ])
    expect(events.at(-1)).toEqual({ type: 'end', reason: 'stop', stopSequence: null })
    expect(events.at(-2)).toMatchObject({ type: 'usage', answerTokens: 5, cachedTokens: 0, thinkingTokens: 0 })
    await model.close()
  })

  test('split thinking and tool calls', async () => {
    const { model } = await open(prompt =>
      prompt.endsWith('<think>\n')
        ? 'I need a sum.\n</think>\n\nLet me add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
        : 'no',
    )
    const answer = await model.generate({ prompt: 'Add', tools: [{ name: 'add' }], thinking: true })
    expect(answer).toMatchObject({ thinking: 'I need a sum.', text: 'Let me add.', reason: 'tool_calls' })
    expect(answer.toolCalls).toEqual([
      { id: expect.stringMatching(/^call_\w{24}$/), name: 'add', arguments: '{"a": 1}' },
    ])
    expect(answer.usage.thinkingTokens).toBeGreaterThan(3)
    await model.close()
  })

  test('show nothing of a tool call that a limit cuts off, and all of one that the model did not finish', async () => {
    const { model } = await open(() => 'Let me add.\n<tool_call>\n{"name": "add", "argu')
    const tools = [{ name: 'add' }]
    const cut = await model.generate({ prompt: 'Add', tools, maxTokens: 8 })
    expect(cut).toMatchObject({ text: 'Let me add.', toolCalls: [], reason: 'length' })
    const odd = await model.generate({ prompt: 'Add', tools })
    expect(odd).toMatchObject({ text: 'Let me add.\n<tool_call>\n{"name": "add", "argu', reason: 'stop' })
    await model.close()
  })

  test('go on from where thinking was cut off, blank lines and all', async () => {
    const { model } = await open(() => 'First this\n\nThen that\n</think>\n\nDone.')
    const session = model.createSession()
    const whole = await session.chat({ messages: hello, thinking: true }).answer()
    expect(whole).toMatchObject({ thinking: 'First this\n\nThen that', text: 'Done.' })
    for (const thinkingPrefill of ['First this', 'First this\n\nThen']) {
      const rest = await session.chat({ messages: hello, thinkingPrefill }).answer()
      expect([`${thinkingPrefill}${rest.thinking}`, rest.text]).toEqual([whole.thinking, whole.text])
      expect(rest.usage.cachedTokens).toBeGreaterThan(0)
    }
    const over = { messages: hello, thinkingPrefill: whole.thinking, prefill: 'D' }
    const rest = await session.chat(over).answer()
    expect([rest.thinking, rest.text]).toEqual(['', 'one.'])
    expect(rest.usage.cachedTokens).toBeGreaterThan(rest.usage.promptTokens / 2)
    await expect(session.chat({ messages: hello, thinking: true, prefill: 'Do' }).answer()).rejects.toThrow(
      /thinkingPrefill$/,
    )
    await model.close()
  })

  test('go on from what the answer begins with, which is text whatever it spells', async () => {
    const { model } = await open(() => 'One two three')
    const session = model.createSession()
    const answer = await session.chat({ messages: hello, prefill: 'One' }).answer()
    expect(answer).toMatchObject({ text: ' two three', usage: { answerTokens: 2 } })
    const more = [...hello, { role: 'assistant', content: 'One two three' }, user('More')]
    const { usage } = await session.chat({ messages: more }).answer()
    expect(usage.cachedTokens).toBeGreaterThan(0)
    const tokens = (prefill?: string) => session.countTokens({ messages: hello, prefill })
    expect((await tokens('<|im_end|>')) - (await tokens())).toBeGreaterThan(2)
    const refused = (options: Partial<ChatOptions>) =>
      expect(session.chat({ messages: hello, prefill: '{', ...options }).answer()).rejects.toThrow(/^prefill: got '{'/)
    await refused({ responseFormat: { type: 'json_object' } })
    await refused({ thinking: true })
    for (const toolChoice of ['required', { name: 'add' }] as const)
      await refused({ tools: [{ name: 'add' }], toolChoice })
    await model.close()
  })

  test('can be read once', async () => {
    const { model } = await open(() => 'ok')
    const stream = model.stream({ prompt: 'go' })
    await collect(stream)
    await expect(stream.answer()).rejects.toMatchObject({ code: 'CLOSED' })
    await model.close()
  })

  test('end at stop sequences and limits', async () => {
    const { model } = await open(() => 'one two three four')
    const session = model.createSession()
    const run = (options: Partial<ChatOptions>) => session.chat({ messages: hello, ...options }).answer()
    expect(await run({ stop: ' three' })).toMatchObject({ text: 'one two', reason: 'stop', stopSequence: ' three' })
    expect(await run({ maxTokens: 2 })).toMatchObject({ text: 'one two', reason: 'length', stopSequence: null })
    expect(await run({ maxTokens: 0 })).toMatchObject({ text: '', reason: 'length' })
    await model.close()
  })

  test('carry logprobs for each token', async () => {
    const { model } = await open(() => 'Once upon')
    const events = await collect(model.stream({ prompt: 'x', logprobs: 2 }))
    const logprobs = events.flatMap(event => ('logprobs' in event ? (event.logprobs ?? []) : []))
    expect(logprobs.map(entry => entry.text)).toEqual(['Once', ' upon'])
    expect(logprobs[0]).toMatchObject({ token: 440, top: [{ token: 440 }, { token: 0 }] })
    expect(logprobs[0].logprob).toBeCloseTo(-Math.log(1 + 8191 * Math.exp(-20)), 6)
    await model.close()
  })

  test('complete raw text and token ids', async () => {
    const { model } = await scriptedModel({ script: tokens => (tokens.length < 6 ? 258 : END_TOKEN) })
    const session = model.createSession()
    expect(await session.complete({ prompt: 'Once upon' }).answer()).toMatchObject({ text: ' a a a a' })
    expect(await session.complete({ prompt: [440, 451] }).answer()).toMatchObject({
      text: ' a a a a',
      usage: { promptTokens: 2, cachedTokens: 2, newTokens: 0 },
    })
    await model.close()
  })

  test('obey a constraint, and close it', async () => {
    const { model } = await open(() => 'yes')
    const [no] = tokenizer.encode('no')
    const only = (token: number) => {
      const mask = new Uint32Array(256)
      mask[token >>> 5] |= 1 << (token & 31)
      return mask
    }
    const accepted: number[] = []
    const close = vi.fn()
    const openConstraint = vi.fn(async () => ({
      mask: async () => only(accepted.length === 0 ? no : END_TOKEN),
      accept: (token: number) => void accepted.push(token),
      close,
    }))
    const answer = await model.generate({ prompt: 'x', thinking: true, tools: [{ name: 'f' }], openConstraint })
    expect(answer).toMatchObject({ thinking: 'no', reason: 'stop' })
    const asked = {
      responseFormat: undefined,
      tools: [{ name: 'f' }],
      toolChoice: 'auto',
      parallelToolCalls: true,
      insideThinking: true,
    }
    expect(openConstraint).toHaveBeenCalledWith(asked, expect.any(AbortSignal))
    expect(accepted).toEqual([no, END_TOKEN])
    expect(close).toHaveBeenCalledOnce()
    await model.close()
  })
})

describe('the prefix cache', () => {
  const turn = async (
    session: { chat(options: ChatOptions): { answer(): Promise<Answer> } },
    messages: ChatMessage[],
  ) => {
    const answer = await session.chat({ messages }).answer()
    messages.push({ role: 'assistant', content: answer.text })
    return answer
  }

  test('lets a growing conversation evaluate only what is new', async () => {
    const { model, evaluated } = await open(prompt => `Answer to ${prompt.length}.`)
    const session = model.createSession()
    const messages: ChatMessage[] = [{ role: 'system', content: 'Be kind to everyone who asks you something.' }]
    let before = 0
    let previous: Answer | null = null
    for (let i = 0; i < 12; i++) {
      messages.push(user(`Question number ${i}, please?`))
      const { usage, ...rest } = await turn(session, messages)
      expect(rest.text).toMatch(/^Answer to/)
      if (previous) {
        // All but the opening of the last answer (`<think>` and so on), which the history does not repeat.
        expect(usage.cachedTokens).toBe(previous.usage.promptTokens - 4)
        expect(evaluated() - before).toBe(usage.newTokens + usage.answerTokens)
        expect(usage.newTokens).toBeLessThan(35)
      }
      before = evaluated()
      previous = { ...rest, usage }
    }
    await model.close()
  })

  test('needs no evaluation for a repeated prompt', async () => {
    const { model, evaluated } = await open(() => 'Yes.')
    const session = model.createSession()
    const first = await session.chat({ messages: hello }).answer()
    const before = evaluated()
    const again = await session.chat({ messages: hello, maxTokens: 1 }).answer()
    expect(again.usage).toMatchObject({ cachedTokens: first.usage.promptTokens, newTokens: 0, cacheWrittenTokens: 0 })
    expect(evaluated()).toBe(before)
    expect(again.text).toBe('Yes')
    await model.close()
  })

  test('goes back exactly to the turn that was edited', async () => {
    const { model } = await open(prompt => `Answer to ${prompt.length}.`)
    const session = model.createSession()
    const messages: ChatMessage[] = [{ role: 'system', content: 'Be kind.' }]
    const lengths: number[] = []
    for (let i = 0; i < 6; i++) {
      messages.push(user(`Question ${i}?`))
      lengths.push((await turn(session, messages)).usage.promptTokens)
    }
    const fresh = (await open(prompt => `Answer to ${prompt.length}.`)).model
    for (const edited of [4, 2, 0]) {
      const changed = structuredClone(messages.slice(0, 2 * edited + 2))
      changed[2 * edited + 1] = user('Something else entirely?')
      const answer = await session.chat({ messages: changed }).answer()
      const expected = await fresh.createSession().chat({ messages: changed }).answer()
      expect(answer.text).toBe(expected.text)
      // The state before the edited user's words: the prompt of that turn without its text and the answer's opening.
      const tail = tokenizer.encode(`\nQuestion ${edited}?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`)
      expect(answer.usage.cachedTokens).toBe(lengths[edited] - tail.length)
    }
    await model.close()
    await fresh.close()
  })

  test('lets nobody wait for a prompt whose caller failed when it was told how far it is', async () => {
    const { model } = await open(prompt => `${prompt.length}.`)
    const session = model.createSession()
    const messages = [{ role: 'system', content: 'You remember numbers. '.repeat(20) } as const, user('Which?')]
    for (const at of [0, 1]) {
      let told = 0
      const onPromptProgress = () => {
        if (told++ === at) throw new Error('my screen is gone')
      }
      await expect(session.chat({ messages, onPromptProgress }).answer()).rejects.toThrow('my screen is gone')
    }
    expect((await session.chat({ messages }).answer()).text).toMatch(/^\d+\.$/)
    await model.close()
  })

  test('keeps breakpoints that the messages ask for', async () => {
    const { model } = await open(() => 'ok')
    const session = model.createSession()
    const document = 'A long document. '.repeat(20)
    const ask = (question: string) =>
      session
        .chat({
          messages: [
            {
              role: 'user',
              content: [
                { type: 'text', text: document, cache_control: { type: 'ephemeral' } },
                { type: 'text', text: question },
              ],
            },
          ],
        })
        .answer()
    const first = await ask('What is it?')
    const second = await ask('Who wrote it?')
    expect(first.usage.cachedTokens).toBe(0)
    const marked = tokenizer.encode(`<|im_start|>user\n${document.trimEnd()}`).length
    expect(second.usage.cachedTokens).toBe(marked - 1)
    await model.close()
  })

  test('shares a system prompt between conversations and does not mix them', async () => {
    const { model } = await open(prompt => `${prompt.match(/number \d+/g)?.join(', ')}.`)
    const session = model.createSession({ maxSequences: 3 })
    const system: ChatMessage = { role: 'system', content: 'You remember numbers.' }
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, i) => session.chat({ messages: [system, user(`I am number ${i}`)] }).answer()),
    )
    expect(answers.map(answer => answer.text)).toEqual(Array.from({ length: 6 }, (_, i) => `number ${i}.`))
    const late = await session.chat({ messages: [system, user('I am number 99')] }).answer()
    expect(late.text).toBe('number 99.')
    expect(late.usage.cachedTokens).toBeGreaterThan(5)
    expect(session.state).toMatchObject({ running: 0, waiting: 0 })
    await model.close()
  })

  test('waits for a prompt that begins alike in place of evaluating it twice', async () => {
    const { model, evaluated } = await open(prompt => `${prompt.match(/number \d+/g)?.at(-1)}.`)
    const session = model.createSession()
    const system: ChatMessage = { role: 'system', content: 'A long text that all of them share. '.repeat(20) }
    const ask = (i: number) => session.chat({ messages: [system, user(`I am number ${i}`)] }).answer()
    const [first, ...others] = await Promise.all([ask(1), ask(2), ask(3), ask(1)])
    expect([first, ...others].map(answer => answer.text)).toEqual(['number 1.', 'number 2.', 'number 3.', 'number 1.'])
    expect(first.usage.cachedTokens).toBe(0)
    for (const { usage } of others) expect(usage.cachedTokens).toBeGreaterThan(150)
    expect(evaluated()).toBeLessThan(2 * first.usage.promptTokens)
    await model.close()
  })

  test('stays within its bytes, keeps the system prompt, and gives all memory back', async () => {
    const { model, alive } = await open(() => 'ok')
    const session = model.createSession({ byteBudget: 80_000 })
    const system: ChatMessage = { role: 'system', content: 'You are patient.' }
    for (let i = 0; i < 8; i++) {
      await session.chat({ messages: [system, user(`${i}`)] }).answer()
      expect(session.state.bytes).toBeLessThanOrEqual(80_000)
    }
    const late = await session.chat({ messages: [system, user('late')] }).answer()
    expect(late.usage.cachedTokens).toBeGreaterThan(5)
    expect(alive().sequences).toBe(0)
    await model.close()
    expect(alive()).toEqual({ sequences: 0, held: 0 })
  })

  test('makes room when memory runs out, and fails only where there is none to make', async () => {
    let most = 6
    const scripted = await open(() => 'one two three', {
      onStep: () => {
        if (scripted.alive().held > most) throw new OutOfMemoryError('states', 1000, 'full')
      },
    })
    const { model } = scripted
    const warnings: string[] = []
    const session = model.createSession({ onWarning: line => warnings.push(line) })
    for (let i = 0; i < 5; i++) {
      expect((await session.chat({ messages: [user(`Number ${i} please`)] }).answer()).text).toBe('one two three')
    }
    expect(warnings[0]).toMatch(/kept states were dropped: states: full/)
    most = -1
    await expect(session.chat({ messages: [user('again')] }).answer()).rejects.toMatchObject({ code: 'OUT_OF_MEMORY' })
    most = 9
    expect((await session.chat({ messages: [user('again')] }).answer()).text).toBe('one two three')
    await model.close()
    expect(scripted.alive()).toEqual({ sequences: 0, held: 0 })
  })

  test('puts tool calls back as the model wrote them, and ids as it chose them', async () => {
    // A template that repeats answers as they were, as those of this family do within a chain of tool calls.
    const template = `{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
    const odd = '<tool_call>\n{ "name":"add",  "arguments": {"b":2,"a":1}}\n</tool_call>'
    // The model spells 'Once' in two tokens, as the tokenizer itself never would.
    const spelled = [...tokenizer.encode('On'), ...tokenizer.encode('ce')]
    expect(spelled).not.toEqual(tokenizer.encode('Once'))
    const written = [...spelled, ...tokenizer.encode(` more: ${odd}`)]
    const { model } = await open(prompt => (prompt.includes('tool\n3') ? 'Three.' : written), { template })
    const session = model.createSession()
    const tools = [{ name: 'add', parameters: { type: 'object' } }]
    const first = await session.chat({ messages: hello, tools }).answer()
    expect(first).toMatchObject({ text: 'Once more: ', reason: 'tool_calls' })
    const call = { name: 'add', arguments: '{"a": 1, "b": 2}' }
    const assistant: ChatMessage = { role: 'assistant', content: first.text, tool_calls: [{ function: call }] }
    const result: ChatMessage = { role: 'tool', content: '3' }
    const second = await session.chat({ messages: [...hello, assistant, result], tools }).answer()
    expect(second.text).toBe('Three.')
    expect(second.usage.cachedTokens).toBe(first.usage.promptTokens + written.length)
    const other = { ...assistant, tool_calls: [{ function: { ...call, arguments: '{"a": 1, "b": 7}' } }] }
    const third = await session.chat({ messages: [...hello, other, result], tools }).answer()
    expect(third.usage.cachedTokens).toBeLessThan(first.usage.promptTokens + 1)
    await model.close()
  })

  test('keeps the thinking within a chain of tool calls, though the client drops it', async () => {
    const template = `{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`
    const written = 'I must add.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    const { model } = await open(prompt => (prompt.includes('tool\n3') ? 'So.\n</think>\n\nThree.' : written), {
      template,
    })
    const session = model.createSession()
    const tools = [{ name: 'add' }]
    const first = await session.chat({ messages: hello, tools, thinking: true }).answer()
    expect(first).toMatchObject({ thinking: 'I must add.', reason: 'tool_calls' })
    const assistant: ChatMessage = { role: 'assistant', content: null, tool_calls: [{ name: 'add', arguments: {} }] }
    const messages = [...hello, assistant, { role: 'tool', content: '3' }]
    const second = await session.chat({ messages, tools, thinking: true }).answer()
    expect(second.text).toBe('Three.')
    expect(second.usage.cachedTokens).toBe(first.usage.promptTokens + first.usage.answerTokens)
    await model.close()
  })

  test('logs one line per request that says what was cached and why not more', async () => {
    const { model } = await open(() => 'ok')
    const lines: string[] = []
    const session = model.createSession({ onLog: line => lines.push(line) })
    await session.chat({ messages: [user('abc def ghi')] }).answer()
    await session.chat({ messages: [user('abc def xyz')] }).answer()
    expect(lines).toEqual([
      expect.stringMatching(
        /^prompt 17 = 0 cached \+ 17 new \(nothing is kept yet\) · prefill .* tok\/s · answer 2, decode .* · stop$/,
      ),
      expect.stringMatching(/agrees with kept tokens up to \d+, the nearest kept state is at \d+/),
    ])
    await model.close()
  })
})

describe('requests that end early', () => {
  const slow = () => {
    let release = () => {}
    const gate = new Promise<void>(resolve => {
      release = resolve
    })
    return { release, gate }
  }

  test('free their slot when the reader leaves', async () => {
    const { model, alive } = await open(() => 'one two three four five')
    const session = model.createSession({ maxSequences: 1 })
    for await (const event of session.chat({ messages: hello })) if (event.type === 'text') break
    expect(session.state).toMatchObject({ running: 0, waiting: 0 })
    expect(alive().sequences).toBe(0)
    expect((await session.chat({ messages: hello }).answer()).text).toBe('one two three four five')
    await model.close()
  })

  test('stop at once when aborted during the prompt, while waiting, or by return()', async () => {
    const blocked = (_runs: unknown, signal?: AbortSignal) =>
      new Promise<void>((_resolve, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
    const { model, alive } = await open(() => 'x', { onStep: blocked })
    const session = model.createSession({ maxSequences: 1 })
    const first = new AbortController()
    const running = session.chat({ messages: hello, signal: first.signal }).next()
    const second = new AbortController()
    const waiting = session.chat({ messages: hello, signal: second.signal }).next()
    const third = session.chat({ messages: hello })
    const left = third.next()
    await vi.waitFor(() => expect(session.state).toMatchObject({ running: 1, waiting: 2 }))
    second.abort()
    await expect(waiting).rejects.toMatchObject({ name: 'AbortError' })
    first.abort(new Error('enough'))
    await expect(running).rejects.toThrow('enough')
    await third.return()
    await expect(left).rejects.toMatchObject({ name: 'AbortError' })
    expect(session.state).toMatchObject({ running: 0, waiting: 0 })
    expect(alive().sequences).toBe(0)
    await model.close()
  })

  test('keep what was evaluated before a failure, and the next request goes on from there', async () => {
    let fail = false
    const { model } = await open(() => 'fine', {
      onStep: () => {
        if (fail) throw new Error('disk gone')
      },
    })
    const session = model.createSession()
    const messages: ChatMessage[] = [{ role: 'system', content: 'S' }, user('one')]
    await session.chat({ messages }).answer()
    fail = true
    await expect(session.chat({ messages: [...messages, user('two')] }).answer()).rejects.toThrow('disk gone')
    fail = false
    const answer = await session.chat({ messages: [...messages, user('two')] }).answer()
    expect(answer.text).toBe('fine')
    expect(answer.usage.cachedTokens).toBeGreaterThan(0)
    await model.close()
  })

  test('leave nothing behind, whenever a hundred of them end', async () => {
    const scripted = await open(prompt => `${prompt.length} `.repeat(9), {
      onStep: () => new Promise(resolve => setTimeout(resolve, Math.random() * 2)),
    })
    const session = scripted.model.createSession({ maxSequences: 4, byteBudget: 200_000 })
    const texts = ['one', 'two', 'three', 'four'].map(word => `${word} `.repeat(40))
    await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const abort = new AbortController()
        if (i % 3 === 0) setTimeout(() => abort.abort(new Error('enough')), Math.random() * 300)
        const messages = [{ role: 'system', content: texts[i % 4] }, user(texts[(i >> 2) % 4])]
        const stream = session.chat({ messages, maxTokens: 12, signal: abort.signal })
        try {
          for await (const event of stream) if (i % 5 === 0 && event.type === 'text') break
        } catch (error) {
          expect((error as Error).message).toBe('enough')
        }
      }),
    )
    expect(session.state).toMatchObject({ running: 0, waiting: 0 })
    expect(scripted.alive().sequences).toBe(0)
    await scripted.model.close()
    expect(scripted.alive()).toEqual({ sequences: 0, held: 0 })
  })

  test('free their slot even where nobody reads on', async () => {
    const { model, alive } = await open(() => 'one two three four five')
    const session = model.createSession({ maxSequences: 1 })
    const abort = new AbortController()
    const unread = session.chat({ messages: hello, signal: abort.signal })
    await unread.next()
    await unread.next()
    expect(alive().sequences).toBe(1)
    abort.abort(new Error('gone'))
    await vi.waitFor(() => expect(session.state.running).toBe(0))
    expect(alive().sequences).toBe(0)
    await expect(unread.next()).rejects.toThrow('gone')
    expect(await unread.next()).toEqual({ done: true, value: undefined })

    const other = session.chat({ messages: hello })
    await other.next()
    await session.close()
    await expect(other.next()).rejects.toMatchObject({ code: 'CLOSED' })
    expect(alive()).toEqual({ sequences: 0, held: 0 })
    await model.close()
  })

  test('are refused when the session or model is closed', async () => {
    const { release, gate } = slow()
    const { model } = await open(() => 'x', { onStep: () => gate })
    const session = model.createSession()
    const running = session.chat({ messages: hello }).next()
    await vi.waitFor(() => expect(session.state.running).toBe(1))
    const closing = model.close()
    release()
    await expect(running).rejects.toMatchObject({ code: 'CLOSED' })
    await closing
    await expect(session.chat({ messages: hello }).next()).rejects.toMatchObject({ code: 'CLOSED' })
    expect(() => model.createSession()).toThrow('the model is closed')
  })
})

describe('what cannot be answered', () => {
  test('is told before anything is evaluated', async () => {
    const { model, evaluated } = await open(() => 'ok', { contextLength: 40 })
    const session = model.createSession()
    const run = (options: Partial<ChatOptions>) => session.chat({ messages: hello, ...options }).answer()
    await expect(run({ messages: [user('word '.repeat(50))] })).rejects.toMatchObject({
      code: 'CONTEXT_LIMIT',
      limit: 40,
    })
    await expect(run({ maxTokens: 39 })).rejects.toMatchObject({ code: 'CONTEXT_LIMIT' })
    await expect(run({ maxTokens: -1 })).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(run({ temperature: Number.NaN })).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(run({ logprobs: 1.5 })).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(run({ responseFormat: { type: 'json_object' } })).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(run({ toolChoice: 'required' })).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(run({ messages: [{ role: 'user', content: [{ type: 'image' }] }] })).rejects.toMatchObject({
      code: 'BAD_MESSAGE',
    })
    await expect(session.complete({ prompt: '' }).answer()).rejects.toMatchObject({ code: 'BAD_OPTION' })
    // As callers without types may write it.
    const formats = ['json_object', {}, { type: 'xml' }, { type: 'grammar' }, { type: 'json_schema' }, null]
    for (const responseFormat of formats as unknown as ChatOptions['responseFormat'][]) {
      await expect(run({ responseFormat })).rejects.toThrow(/^responseFormat: got .*, want an object of type/)
    }
    for (const toolChoice of ['any', {}, 3] as unknown as ChatOptions['toolChoice'][]) {
      await expect(run({ toolChoice })).rejects.toThrow(/^toolChoice: got .*, want 'none'/)
    }
    await expect(run({ thinkingBudget: -1 })).rejects.toThrow(/^thinkingBudget/)
    await expect(run({ logitBias: { 5: 1 } as never })).rejects.toThrow(/^logitBias: got .*, want a Map/)
    expect(evaluated()).toBe(0)
    expect(() => model.createSession({ maxSequences: 0 })).toThrow(/maxSequences/)
    await model.close()
  })

  test('fills the context and says so', async () => {
    const { model } = await scriptedModel({ script: () => 258, contextLength: 30 })
    const answer = await model.generate({ prompt: 'go' })
    expect(answer.reason).toBe('length')
    expect(answer.usage.promptTokens + answer.usage.answerTokens).toBe(30)
    await model.close()
  })

  test('names what the model folder lacks', async () => {
    const { model: raw } = await open(() => 'ok', { template: null })
    await expect(raw.generate({ prompt: 'x' })).rejects.toMatchObject({ code: 'TEMPLATE' })
    expect((await raw.createSession().complete({ prompt: 'x', maxTokens: 1 }).answer()).usage.promptTokens).toBe(1)
    await raw.close()
    const { model: mute } = await open(() => 'ok', { withTokenizer: false })
    expect(mute.tokenizer).toBeNull()
    await expect(mute.createSession().complete({ prompt: 'x' }).answer()).rejects.toMatchObject({ code: 'TOKENIZER' })
    await mute.close()
  })

  test('counts tokens without evaluating', async () => {
    const { model, evaluated } = await open(() => 'ok')
    const session = model.createSession()
    const count = await session.countTokens({ messages: hello })
    expect(evaluated()).toBe(0)
    expect((await session.chat({ messages: hello }).answer()).usage.promptTokens).toBe(count)
    await model.close()
  })
})
