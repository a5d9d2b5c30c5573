// Streams of text split into thinking, text and tool calls, wherever they are cut.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SplitEvent, SplitterOptions } from '#moeflux/text/answer/splitter.js'
import { qwen3_5 } from '#moeflux/text/dialects/qwen3_5.js'
import { processorMs } from '../support/processorMs.js'

/** Events with neighbours of one kind joined: what a reader of the stream gets in the end. */
function split(pieces: readonly string[], options?: SplitterOptions): SplitEvent[] & { stopped?: string | null } {
  const splitter = qwen3_5.createSplitter(options)
  const all = [...pieces.flatMap(piece => splitter.push(piece)), ...splitter.end()]
  const joined: SplitEvent[] = []
  for (const event of all) {
    const last = joined.at(-1)
    if ('text' in event && last?.type === event.type) {
      joined[joined.length - 1] = { type: event.type, text: last.text + event.text }
    } else joined.push(event)
  }
  return joined
}

const text = (value: string) => ({ type: 'text', text: value })
const thinking = (value: string) => ({ type: 'thinking', text: value })
const call = (name: string, args: string) => ({ type: 'toolCall', name, arguments: args })

describe('thinking', () => {
  test('is split from the answer, without the newlines around it', () => {
    expect(split(['<think>\nA plan.\n\nMore.\n</think>\n\nThe answer.\n'])).toEqual([
      thinking('A plan.\n\nMore.'),
      text('The answer.\n'),
    ])
    expect(split(['A plan.\n</think>\n\nHi'], { insideThinking: true })).toEqual([thinking('A plan.'), text('Hi')])
    expect(split(['\n <think>x</think>y'])).toEqual([thinking('x'), text('y')])
    expect(split(['<think>\n\n</think>\n\nHi'])).toEqual([text('Hi')])
  })

  test('is recognized only at the start, and its end only inside', () => {
    expect(split(['I write <think> here </think>.'])).toEqual([text('I write <think> here </think>.')])
    expect(split(['</think>x'])).toEqual([text('</think>x')])
    expect(split(['a < b <thin'])).toEqual([text('a < b <thin')])
    expect(split(['<think>never ends <tool_call>'])).toEqual([thinking('never ends <tool_call>')])
    expect(split(['<think>x</think>'], { thinking: false })).toEqual([text('<think>x</think>')])
  })
})

describe('tool calls', () => {
  test('are found in both forms, several and between text', () => {
    expect(
      split([
        'Let me see.\n\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2]}}\n</tool_call>\n' +
          '<tool_call>{"name":"now"}</tool_call>\nDone',
      ]),
    ).toEqual([text('Let me see.'), call('add', '{"a": 1, "b": [2]}'), call('now', '{}'), text('Done')])
    expect(
      split(
        [
          '<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=lines>\n3\n</parameter>\n' +
            '<parameter=body>\nuse <b>"</parameter>"\n\nand </tool_call>\n</parameter>\n</function>\n</tool_call>',
        ],
        { parameterType: (_tool, key) => (key === 'lines' ? 'integer' : 'string') },
      ),
    ).toEqual([
      call('write', '{"path": "a.txt", "lines": 3, "body": "use <b>\\"</parameter>\\"\\n\\nand </tool_call>"}'),
    ])
  })

  test('may have end tags inside JSON strings, and keep the digits of numbers', () => {
    const args = '{"x": "</tool_call> \\" } <tool_call>", "id": 12345678901234567890}'
    expect(split([`<tool_call>{"name": "f", "arguments": ${args}}</tool_call>`])).toEqual([call('f', args)])
    expect(split(['<tool_call>{"arguments": {"arguments": 1}, "name": "f"}</tool_call>'])).toEqual([
      call('f', '{"arguments": 1}'),
    ])
    expect(split(['<tool_call>{"name": "f", "arguments": "{\\"a\\":1}"}</tool_call>'])).toEqual([call('f', '{"a":1}')])
  })

  test('without an end tag count when they are whole', () => {
    expect(split(['<tool_call>\n{"name": "f", "arguments": {}}\n'])).toEqual([call('f', '{}')])
    expect(split(['<tool_call>\n{"name": "f", "argu'])).toEqual([text('<tool_call>\n{"name": "f", "argu')])
  })

  test('come out as text where they are broken', () => {
    for (const broken of [
      'x\n<tool_call>hello</tool_call>',
      '<tool_call>{"name": "f" "arguments"}</tool_call>',
      '<tool_call>{"name": 3}</tool_call>',
      '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
      '<tool_call>{"name": "f"} and more</tool_call>',
      '<tool_call><b>bold</b></tool_call>',
      '<tool_call><function=f><b></function></tool_call>',
      '<tool_call>',
      'a\n\n<tool_call>\n[1]\n</tool_call>\n\n',
    ]) {
      expect(split([broken])).toEqual([text(broken)])
    }
    expect(split(['<tool_call>no <tool_call>{"name":"f"}</tool_call>'])).toEqual([
      text('<tool_call>no '),
      call('f', '{}'),
    ])
  })

  test('are text where they are switched off', () => {
    const plain = '\n<tool_call>{"name":"f"}</tool_call>\n'
    expect(split([plain], { toolCalls: false })).toEqual([text(plain)])
  })

  test('of a hundred kilobytes take linear time', () => {
    const body = '<p>x</p>\n'.repeat(12_000)
    const start = processorMs()
    const [event] = split([`<tool_call><function=f><parameter=x>${body}</parameter></function></tool_call>`])
    expect(JSON.parse((event as { arguments: string }).arguments).x).toBe(body.slice(0, -1))
    expect(processorMs() - start).toBeLessThan(3_000)
  })
})

describe('stop sequences', () => {
  test('end the text before them', () => {
    const splitter = qwen3_5.createSplitter({ stop: ['\nUser:', 'END', 'xEND'] })
    expect([...splitter.push('one\n\nUs'), ...splitter.push('er: two')]).toEqual([text('one'), text('\n')])
    expect(splitter.stopped).toBe('\nUser:')
    expect([...splitter.push('more'), ...splitter.end()]).toEqual([])
    expect(split(['axEND'], { stop: ['END', 'xEND'] })).toEqual([text('a')])
    expect(split(['not EN', 'D'], { stop: ['ENDE', ''] })).toEqual([text('not END')])
  })

  test('do not act inside thinking', () => {
    expect(split(['<think>a END b</think>c END d'], { stop: ['END'] })).toEqual([thinking('a END b'), text('c ')])
  })
})

describe('always', () => {
  const token = fc.constantFrom(
    '<think>',
    '</think>',
    '<tool_call>',
    '</tool_call>',
    '{"name": "f", "arguments": {"a": "</tool_call>"}}',
    '{"name":"g"}',
    '<function=f>',
    '<parameter=a>',
    '</parameter>',
    '</function>',
    '\n',
    '\n\n',
    ' ',
    'word',
    '"',
    '{',
    '}',
    '\\',
    '<',
    'STOP',
    'ST',
    '😀',
  )

  test('gives the same events for any cut of the text, and loses nothing of plain text', () => {
    fc.assert(
      fc.property(
        fc.array(token, { maxLength: 14 }).map(parts => parts.join('')),
        fc.array(fc.nat(), { maxLength: 8 }),
        fc.boolean(),
        fc.boolean(),
        (whole, cuts, insideThinking, toolCalls) => {
          const options = { insideThinking, toolCalls, stop: ['STOP', 'TOP\n', '<STOP'] }
          const points = [...new Set(cuts.map(cut => cut % (whole.length + 1)))].sort((a, b) => a - b)
          const pieces = [0, ...points].map((point, i) => whole.slice(point, points[i] ?? whole.length))
          const expected = split([whole], options)
          expect(split(pieces, options)).toEqual(expected)
          expect(split([...whole], options)).toEqual(expected)
        },
      ),
      { numRuns: 2000 },
    )
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), plain => {
        fc.pre(!plain.includes('<'))
        expect(
          split([...plain])
            .map(event => ('text' in event ? event.text : ''))
            .join(''),
        ).toBe(plain)
      }),
    )
  })
})
