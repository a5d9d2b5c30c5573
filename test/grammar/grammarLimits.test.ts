// What bounds the work on a grammar acts while it is done, by counting and not by a clock: each bound alone, without a
// worker that could be stopped instead.
import { describe, expect, test } from 'vitest'
import { GrammarBuilder, GrammarSizeError } from '#moeflux/grammar/source/grammarBuilder.js'
import { draftProgram, sourceText } from '#moeflux/grammar/source/grammarSource.js'

const times = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i))
const object = (properties: Record<string, unknown>) => ({ type: 'object', properties })
const draft = (schema: unknown) => draftProgram(sourceText({ kind: 'json_schema', schema }))

describe('a grammar', () => {
  test('stops at its bound of steps, however few parts it has', () => {
    const ways = { allOf: times(30, i => ({ anyOf: [object({ [`a${i}`]: {} }), { required: [`b${i}`] }] })) }
    expect(() => draft(ways)).toThrow(/it takes more than \d+ steps to make a grammar of it$/)
  })

  test('that is made of itself is refused as what it is, and not for its steps', () => {
    expect(() => draft({ type: 'string', allOf: [{ $ref: '#' }] })).toThrow(/refers to itself/)
    expect(() => draft({ anyOf: [{ $ref: '#' }, { type: 'null' }] })).toThrow(/refers to itself/)
  })

  test('stops at its bounds of parts and of text, at the part that is too much', () => {
    const add: Record<string, (builder: GrammarBuilder, i: number) => unknown> = {
      literals: (builder, i) => builder.literal(`x${i}`),
      lists: (builder, i) => builder.choice(times(8, n => builder.literal(`${(i >> n) & 1}${n}`))),
      classes: (builder, i) => builder.charClass([[0x1000 + 70 * i, 0x1020 + 70 * i]]),
      promises: builder => builder.promise(),
    }
    for (const [what, make] of Object.entries(add)) {
      const builder = new GrammarBuilder({ nodes: 100, bytes: 2 ** 20 })
      expect(() => {
        for (let i = 0; i < 10_000; i++) make(builder, i)
      }, what).toThrow(new GrammarSizeError('the grammar has more than 100 parts'))
      expect(builder.size, what).toBeLessThanOrEqual(101)
    }
    const builder = new GrammarBuilder({ nodes: 100, bytes: 64 })
    builder.literal('x'.repeat(64))
    expect(() => builder.literal('y')).toThrow(new GrammarSizeError('the grammar has more than 64 bytes of text'))
  })

  test('that is too large to be sent is refused before anybody works on it', () => {
    expect(() => sourceText({ kind: 'json_schema', schema: { enum: times(1_000_000, i => i) } })).toThrow(/values/)
    expect(() => sourceText({ kind: 'json_schema', schema: { const: 'x'.repeat(2 ** 21) } })).toThrow(/characters/)
    const deep = times(300, i => i).reduce<unknown>(items => ({ items }), {})
    expect(() => sourceText({ kind: 'json_schema', schema: deep })).toThrow(/nested deeper than 200/)
  })
})
