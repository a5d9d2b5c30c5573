// Each dialect's answers, as they stream: whatever the cuts, thinking, text and calls come out, and what is no call is text.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { AnswerSplitter, SplitEvent, SplitterOptions } from '#moeflux/text/answer/splitter.js'
import type { Dialect } from '#moeflux/text/dialects/dialect.js'
import { DIALECTS, findDialect } from '#moeflux/text/dialects/findDialect.js'
import { glm4 } from '#moeflux/text/dialects/glm4.js'
import { harmony } from '#moeflux/text/dialects/harmony.js'
import { prepareHarmonyChat } from '#moeflux/text/dialects/harmonyChat.js'
import { hermes } from '#moeflux/text/dialects/hermes.js'
import { qwen3_5 } from '#moeflux/text/dialects/qwen3_5.js'
import { qwen3_coder } from '#moeflux/text/dialects/qwen3_coder.js'
import { TEMPLATES } from '../support/models/dialectModels.js'

/** A stream: text, and control tokens of the dialect. */
type Stream = readonly (string | { readonly mark: string })[]

/** `<|…|>` in a text as control tokens. */
function stream(text: string): Stream {
  const parts = text.split(/(<\|\w+\|>)/).filter(part => part !== '')
  return parts.map(part => (part.startsWith('<|') ? { mark: part } : part))
}

function feed(splitter: AnswerSplitter, pieces: Stream, isCutOff = false): SplitEvent[] {
  const all = pieces.flatMap(piece => (typeof piece === 'string' ? splitter.push(piece) : splitter.mark(piece.mark)))
  return [...all, ...splitter.end(isCutOff)]
}

/** Events with neighbours joined, and without those that tell of calls while they are written. */
function joined(events: readonly SplitEvent[]): SplitEvent[] {
  const out: SplitEvent[] = []
  for (const event of events) {
    const last = out.at(-1)
    if ('text' in event && last?.type === event.type) out[out.length - 1] = { ...event, text: last.text + event.text }
    else if ('text' in event || event.type === 'toolCall') out.push(event)
  }
  return out
}

/** What all cuts of the text give, character by character and in one piece. */
function split(dialect: Dialect, pieces: Stream, options?: SplitterOptions, isCutOff = false): SplitEvent[] {
  const whole = joined(feed(dialect.createSplitter(options), pieces, isCutOff))
  const single: Stream = pieces.flatMap((piece): Stream => (typeof piece === 'string' ? [...piece] : [piece]))
  const progress = feed(dialect.createSplitter({ ...options, callProgress: true }), single, isCutOff)
  expect(joined(progress)).toEqual(whole)
  expect(toldCalls(progress)).toEqual(whole.filter(event => event.type === 'toolCall'))
  return whole
}

/** The calls as they were told on the way. */
function toldCalls(events: readonly SplitEvent[]): unknown[] {
  const calls: { type: 'toolCall'; name: string; arguments: string }[] = []
  for (const event of events) {
    if (event.type === 'toolCallStart') calls.push({ type: 'toolCall', name: event.name, arguments: '' })
    else if (event.type === 'toolCallDelta') calls[calls.length - 1].arguments += event.arguments
    else if (event.type === 'toolCallDropped') calls.pop()
  }
  return calls
}

const text = (value: string) => ({ type: 'text', text: value })
const thinking = (value: string) => ({ type: 'thinking', text: value })
const call = (name: string, args: string) => ({ type: 'toolCall', name, arguments: args })

describe('the dialect of a model', () => {
  test('is the one that its template shows, else the one that its family names', () => {
    for (const { name } of DIALECTS) expect(findDialect(TEMPLATES[name]).name).toBe(name)
    expect(findDialect(TEMPLATES.glm4, 'harmony').name).toBe('glm4')
    expect(findDialect('{{ messages }}', 'harmony').name).toBe('harmony')
    expect(findDialect(null).name).toBe('hermes')
  })
})

describe('qwen3_coder', () => {
  const written = '<function=f>\n<parameter=x>\na </function> b\n</parameter>\n</function>'
  const read = call('f', '{"x": "a </function> b"}')

  test('calls with a block around it, or without one where the model forgot to open it', () => {
    expect(split(qwen3_coder, [`So:\n<tool_call>\n${written}\n</tool_call>\n`])).toEqual([text('So:'), read])
    expect(split(qwen3_coder, [`So:\n${written}\n</tool_call>\n${written}\nDone`])).toEqual([
      text('So:'),
      read,
      read,
      text('Done'),
    ])
    expect(split(qwen3_coder, [written.replace('\n</function>', '')])).toEqual([read])
    expect(split(qwen3_coder, [`${written} </tool_call>`])).toEqual([read, text(' </tool_call>')])
  })

  test('leaves text what is no call, at once', () => {
    const plain = 'write <function=f> and then'
    expect(split(qwen3_coder, [plain])).toEqual([text(plain)])
    const splitter = qwen3_coder.createSplitter()
    expect(joined([...splitter.push('<function=f> and'), ...splitter.push(' so')])).toEqual([
      text('<function=f> and so'),
    ])
    expect(split(qwen3_coder, ['a</tool_call><function=\n>'])).toEqual([text('a</tool_call><function=\n>')])
  })
})

describe('glm4', () => {
  const types: SplitterOptions = { parameterType: (_tool, key) => (key === 'days' ? 'integer' : 'string') }
  const written =
    '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo "N"\n</arg_value>\n' +
    '<arg_key>days</arg_key>\n<arg_value> 3</arg_value>\n</tool_call>'
  const read = call('get_weather', '{"city": "Oslo \\"N\\"\\n", "days": 3}')

  test('thinks where the model opens it, and calls with one key after the other', () => {
    expect(split(glm4, [`\n<think>A plan.</think>\nSo:\n${written}\n<tool_call>now\n</tool_call>`], types)).toEqual([
      thinking('A plan.'),
      text('So:'),
      read,
      call('now', '{}'),
    ])
  })

  test('may leave out newlines, put spaces in their place, or the end', () => {
    expect(split(glm4, [written.replaceAll('\n<', '<').replace('weather<', 'weather <')], types)).toEqual([
      call('get_weather', '{"city": "Oslo \\"N\\"", "days": 3}'),
    ])
    expect(split(glm4, [written.replace('\n</tool_call>', '')], types)).toEqual([read])
    expect(split(glm4, ['<tool_call>now'])).toEqual([text('<tool_call>now')])
  })

  test('has tags in values where nothing of the call follows them', () => {
    const value = '</arg_value> <arg_value></tool_call> <arg_key>'
    const body = `<arg_key>x</arg_key><arg_value>${value}</arg_value></tool_call>`
    expect(split(glm4, [`<tool_call>f${body}`])).toEqual([call('f', `{"x": ${JSON.stringify(value)}}`)])
  })

  test('leaves text what is no call', () => {
    for (const plain of [
      'the <tool_call> tag',
      '<tool_call></tool_call>',
      '<tool_call>{"name": "f"}</tool_call>',
      '<tool_call>f\n<arg_key>x</arg_key>no value',
      '<tool_call>f\nwords</tool_call>',
      '<tool_call>f<arg_key></arg_key><arg_value></arg_value></tool_call>',
    ]) {
      expect(split(glm4, [plain])).toEqual([text(plain)])
    }
    expect(split(glm4, ['<tool_call>f\n<arg_key>x</arg_key><arg_value>y'], {}, true)).toEqual([])
  })
})

describe('harmony', () => {
  const analysis = '<|channel|>analysis<|message|>Need a tool.<|end|><|start|>assistant'

  test('splits channels, and a call is told by its recipient, before the channel or after it', () => {
    expect(split(harmony, stream(`${analysis}<|channel|>final<|message|>Hi.\n`))).toEqual([
      thinking('Need a tool.'),
      text('Hi.\n'),
    ])
    for (const header of [
      '<|channel|>commentary to=functions.f <|constrain|>json<|message|>',
      '<|channel|>commentary to=functions.f<|constrain|>json<|message|>',
      ' to=functions.f<|channel|>commentary json<|message|>',
      '<|channel|>analysis to=f code<|message|>',
    ]) {
      expect(split(harmony, stream(`${analysis}${header}{"a": [1, "}"]} \n`))).toEqual([
        thinking('Need a tool.'),
        call('f', '{"a": [1, "}"]}'),
      ])
    }
    expect(split(harmony, stream(' to=functions.now<|channel|>commentary<|message|><|end|>'))).toEqual([
      call('now', '{}'),
    ])
  })

  test('puts a blank line between messages of a kind', () => {
    const preamble = '<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant'
    expect(split(harmony, stream(`${preamble}${analysis}${analysis}<|channel|>final<|message|>Done`))).toEqual([
      text('I will look.'),
      thinking('Need a tool.\n\nNeed a tool.'),
      text('\n\nDone'),
    ])
  })

  test('leaves text what is no call, what spells a control token, and what has no header', () => {
    const broken = '<|channel|>commentary to=functions.f json<|message|>{"a": '
    expect(split(harmony, stream(broken))).toEqual([text(broken)])
    expect(split(harmony, stream(broken), {}, true)).toEqual([])
    expect(split(harmony, stream(`${broken.slice(0, -6)}print(1)`))).toEqual([text(`${broken.slice(0, -6)}print(1)`)])
    expect(split(harmony, stream(broken.replace('{"a": ', '{}')), { toolCalls: false })).toEqual([
      text(broken.replace('{"a": ', '{}')),
    ])
    const spelled = '<|channel|>analysis<|message|>x<|end|>'
    expect(split(harmony, [{ mark: '<|channel|>' }, 'final', { mark: '<|message|>' }, spelled])).toEqual([
      text(spelled),
    ])
    for (const plain of ['Hello', 'a', 'assistant', 'to=day', 'one\ntwo', ' x']) {
      expect(split(harmony, [plain])).toEqual([text(plain)])
    }
    expect(split(harmony, stream('<|channel|>final'))).toEqual([])
  })

  test('stops in text alone, and goes on from the beginning of a text', () => {
    const whole = stream('<|channel|>analysis<|message|>a END<|end|><|start|>assistant<|channel|>final<|message|>b EN')
    const splitter = harmony.createSplitter({ stop: ['END'] })
    expect(joined([...whole, 'D c'].flatMap(part => feedOne(splitter, part)))).toEqual([thinking('a END'), text('b ')])
    expect(splitter.stopped).toBe('END')
    expect(split(harmony, whole, { stop: ['END'] }).at(-1)).toEqual(text('b EN'))
    expect(split(harmony, ['ly cold'], { insideText: true })).toEqual([text('ly cold')])
  })

  test('thinks inside of a thinking message alone', () => {
    const splitter = harmony.createSplitter()
    const inside = stream(`${analysis}<|channel|>final<|message|>Hi`).map(part => {
      feedOne(splitter, part)
      return splitter.inThinking
    })
    expect(inside).toEqual([false, false, true, true, false, false, false, false, false, false, false])
  })
})

function feedOne(splitter: AnswerSplitter, part: Stream[number]): SplitEvent[] {
  return typeof part === 'string' ? splitter.push(part) : splitter.mark(part.mark)
}

describe('a chat for harmony templates', () => {
  test('has one call in a message with its result after it, and loses nothing', () => {
    const calls = ['a', 'b'].map(id => ({ id, type: 'function' as const, function: { name: id, arguments: {} } }))
    const { chat, places } = prepareHarmonyChat({
      messages: [
        { role: 'system', content: 'S' },
        { role: 'user', content: 'U' },
        { role: 'assistant', content: 'C', reasoning_content: 'T', tool_calls: calls },
        { role: 'tool', content: 'B', tool_call_id: 'b' },
        { role: 'tool', content: 'A', tool_call_id: 'a' },
        { role: 'tool', content: 'left over' },
        { role: 'system', content: 'late' },
      ],
      tools: [
        {
          type: 'function',
          function: { name: 'a', parameters: { type: 'object', properties: { x: { type: 'string' } } } },
        },
      ],
      variables: { extra: 1 },
    })
    expect(chat.messages).toEqual([
      { role: 'system', content: 'S' },
      { role: 'user', content: 'U' },
      { role: 'assistant', content: '', thinking: 'T\n\nC', tool_calls: [calls[0]] },
      { role: 'tool', content: 'A', tool_call_id: 'a' },
      { role: 'assistant', content: '', tool_calls: [calls[1]] },
      { role: 'tool', content: 'B', tool_call_id: 'b' },
      { role: 'tool', content: 'left over' },
      { role: 'user', content: 'late' },
    ])
    expect(places).toEqual([0, 1, 4, 5, 3, 6, 7])
    expect(chat.variables).toEqual({ reasoning_effort: 'low', extra: 1 })
    expect(chat.tools).toEqual([
      {
        type: 'function',
        function: {
          name: 'a',
          description: '',
          parameters: { type: 'object', properties: { x: { type: 'string', description: '' } } },
        },
      },
    ])
  })
})

describe('always', () => {
  const pieces: Record<string, readonly string[]> = {
    tags: [
      ...[
        '<think>',
        '</think>',
        '<tool_call>',
        '</tool_call>',
        '<arg_key>',
        '</arg_key>',
        '<arg_value>',
        '</arg_value>',
      ],
      ...[
        '<function=f>',
        '<parameter=a>',
        '</parameter>',
        '</function>',
        '{"name": "f", "arguments": {',
        '}}',
        'f',
        'STOP',
      ],
      ...['\n', ' ', '"', '<', '😀'],
    ],
    channels: [
      ...[
        '<|start|>',
        '<|channel|>',
        '<|message|>',
        '<|constrain|>',
        '<|end|>',
        '<|call|>',
        'assistant',
        'analysis',
        'final',
      ],
      ...[
        'commentary',
        ' to=functions.f',
        ' to=',
        'json',
        '{"a": 1}',
        '{',
        '}',
        '\n',
        ' ',
        'word',
        'STOP',
        'ST',
        '😀',
        '<|',
      ],
    ],
  }

  test('gives the same for any cut, and tells of each call what it will be', () => {
    for (const dialect of [qwen3_5, qwen3_coder, hermes, glm4, harmony]) {
      const part = fc.constantFrom(...pieces[dialect.layout.kind])
      fc.assert(
        fc.property(fc.array(part, { maxLength: 16 }), fc.boolean(), fc.boolean(), (parts, toolCalls, isCutOff) => {
          const whole = dialect === harmony ? stream(parts.join('')) : [parts.join('')]
          split(dialect, whole, { toolCalls, stop: ['STOP', 'TOP\n'] }, isCutOff)
        }),
        { numRuns: 500 },
      )
    }
  })

  test('loses nothing of plain text', () => {
    for (const dialect of DIALECTS) {
      fc.assert(
        fc.property(fc.string({ unit: 'grapheme' }), plain => {
          fc.pre(!plain.includes('<'))
          const events = split(dialect, [plain])
          expect(events.map(event => ('text' in event ? event.text : '')).join('')).toBe(plain)
        }),
      )
    }
  })
})
