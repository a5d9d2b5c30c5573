// Tool calls that are told of while they are being written: what was told is the call that follows, or is taken back.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SplitEvent, SplitterOptions } from '#moeflux/text/answer/splitter.js'
import { hermes } from '#moeflux/text/dialects/hermes.js'

const types: Record<string, string> = { text: 'string', count: 'integer' }

function events(text: string, options: SplitterOptions = {}, isCutOff = false): SplitEvent[] {
  const parameterType = (_tool: string, name: string) => types[name]
  const splitter = hermes.createSplitter({ callProgress: true, parameterType, ...options })
  return [...[...text].flatMap(character => splitter.push(character)), ...splitter.end(isCutOff)]
}

const start = (name: string) => ({ type: 'toolCallStart', name })
const delta = (text: string) => ({ type: 'toolCallDelta', arguments: text })
const dropped = { type: 'toolCallDropped' }

/** Each call as it was told: those that were taken back end with null. */
function told(all: readonly SplitEvent[]): { name: string; arguments: string; call: unknown }[] {
  const calls: { name: string; arguments: string; call: unknown }[] = []
  let open = false
  for (const event of all) {
    const last = calls.at(-1)
    if (event.type === 'toolCallStart') {
      expect(open).toBe(false)
      calls.push({ name: event.name, arguments: '', call: null })
      open = true
    } else if (event.type === 'toolCallDelta' && last) last.arguments += event.arguments
    else if (event.type === 'toolCall' && last) last.call = { name: event.name, arguments: event.arguments }
    if (event.type === 'toolCall' || event.type === 'toolCallDropped') {
      expect(open).toBe(true)
      open = false
    }
  }
  expect(open).toBe(false)
  return calls
}

describe('a call that is being written', () => {
  test('in JSON is told character by character, once its name is known', () => {
    const args = '{"path": "a.txt", "n": [1, {"b": "}"}]}'
    const all = events(`<tool_call>\n{"name": "write", "arguments": ${args}}\n</tool_call>`)
    expect(all.slice(0, 3)).toEqual([start('write'), delta('{'), delta('"')])
    expect(all.filter(event => event.type === 'toolCallDelta')).toHaveLength(args.length)
    expect(told(all)).toEqual([{ name: 'write', arguments: args, call: { name: 'write', arguments: args } }])
  })

  test('in tags is told as JSON: text as it comes, other values when they are whole', () => {
    const head = '<tool_call>\n<function=write>\n<parameter=text>\nsay "hi"'
    const open = events(head, {}, true)
    expect(open.at(-1)).toEqual(dropped)
    expect(told(open)).toEqual([{ name: 'write', arguments: '{"text": "say \\"hi\\"', call: null }])
    const rest = '\n</parameter>\n<parameter=count>\n12\n</parameter>\n</function>\n</tool_call>'
    const args = '{"text": "say \\"hi\\"", "count": 12}'
    expect(told(events(head + rest))).toEqual([
      { name: 'write', arguments: args, call: { name: 'write', arguments: args } },
    ])
  })

  test('is taken back where it breaks, and comes out as text', () => {
    const broken = '<tool_call>{"name": "f", "arguments": {"a": 1]}}</tool_call>'
    const all = events(broken)
    expect(told(all)).toEqual([{ name: 'f', arguments: '{"a": 1]', call: null }])
    expect(all.map(event => (event.type === 'text' ? event.text : '')).join('')).toBe(broken)
  })

  test('is told at its end where its name comes last, or its arguments come twice', () => {
    expect(events('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>')).toEqual([
      start('f'),
      delta('{"a": 1}'),
      { type: 'toolCall', name: 'f', arguments: '{"a": 1}' },
    ])
    const twice = events('<tool_call>{"name": "f", "arguments": {}, "arguments": {"b": 2}}</tool_call>')
    expect(told(twice).at(-1)).toEqual({ name: 'f', arguments: '{"b": 2}', call: { name: 'f', arguments: '{"b": 2}' } })
  })

  test('is told of as it will be, whatever is in it', () => {
    const piece = fc.constantFrom(
      ...[
        '</parameter>',
        '</function>',
        '</tool_call>',
        '<parameter=text>',
        '\n',
        ' ',
        '"',
        '\\',
        'word',
        '😀',
        '<',
        '7',
      ],
    )
    const value = fc.array(piece, { maxLength: 6 }).map(parts => parts.join(''))
    const tags = fc
      .array(fc.tuple(fc.constantFrom('text', 'count', 'other'), value), { maxLength: 3 })
      .map(list => list.map(([key, text]) => `<parameter=${key}>\n${text}\n</parameter>\n`).join(''))
      .map(list => `<function=f>\n${list}</function>\n`)
    const json = fc.jsonValue().map(any => JSON.stringify({ name: 'f', arguments: any }))
    fc.assert(
      fc.property(fc.oneof(tags, json), fc.nat({ max: 20 }), fc.boolean(), (body, cut, isCutOff) => {
        const text = `so <tool_call>\n${body}</tool_call>`
        const all = events(text.slice(0, text.length - (cut > 10 ? cut : 0)), {}, isCutOff)
        for (const { call, ...said } of told(all)) if (call !== null) expect(call).toEqual(said)
        const calls = all.filter(event => event.type === 'toolCall')
        expect(told(all).filter(({ call }) => call !== null)).toHaveLength(calls.length)
      }),
      { numRuns: 1000 },
    )
  })
})
