// JSON that is read piece by piece: the same values as JSON.parse gives, and the same texts refused.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { JsonReader } from '#moeflux/apps/server/jsonReader.js'

const wide = { maxDepth: 1000, maxValues: 1e6 }

function read(pieces: readonly string[], limits = wide): unknown {
  const reader = new JsonReader(limits)
  for (const piece of pieces) reader.push(piece)
  return reader.end()
}

/** A text cut at random places. */
const cut = (text: string, cuts: readonly number[]): string[] => {
  const places = [...cuts.map(at => at % (text.length + 1)), text.length].sort((a, b) => a - b)
  return places.map((end, i) => text.slice(i === 0 ? 0 : places[i - 1], end))
}

const outcome = (work: () => unknown): unknown => {
  try {
    return { value: work() }
  } catch {
    return 'refused'
  }
}

const awkward = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.array(fc.constantFrom('"', '\\', '\n', '/', '\u2028', '😀', '\ud800', 'u12', '\0')).map(parts => parts.join('')),
)
const value = fc.jsonValue({ depthSize: 'medium' })
const cuts = fc.array(fc.nat(), { maxLength: 12 })
const indent = fc.constantFrom(undefined, 1, '\t', '\r\n ')

describe('a JSON text in pieces', () => {
  test('is what JSON.parse makes of it, wherever it is cut', () => {
    const any = fc.oneof(value, awkward, fc.array(awkward), fc.dictionary(awkward, awkward), fc.double())
    fc.assert(
      fc.property(any, cuts, indent, (value, cuts, indent) => {
        const text = JSON.stringify(value, null, indent)
        expect(read(cut(text, cuts))).toEqual(JSON.parse(text))
      }),
      { numRuns: 500 },
    )
  })

  test('is refused where JSON.parse refuses it, and only there', () => {
    const piece = fc.constantFrom(
      ...[
        '{',
        '}',
        '[',
        ']',
        ':',
        ',',
        '"',
        '""',
        '"a"',
        '"\\u00e9',
        '\\"',
        '\\',
        '\\u',
        '\\x',
        '1',
        '-',
        '0',
        '01',
        '.5',
      ],
      ...[
        '1e',
        'E+2',
        '-0.0',
        'true',
        'fals',
        'null',
        'nullx',
        ' ',
        '\n',
        '\u00a0',
        '\ufeff',
        '\u0001',
        '__proto__',
        'é',
      ],
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), cuts, (pieces, cuts) => {
        const text = pieces.join('')
        expect(outcome(() => read(cut(text, cuts)))).toEqual(outcome(() => JSON.parse(text)))
      }),
      { numRuns: 3000 },
    )
    // Texts that are nearly right.
    fc.assert(
      fc.property(
        value,
        fc.nat(),
        fc.constantFrom('', '"', ',', '}', ']', '\\', '1', ' '),
        cuts,
        (value, at, new_, cuts) => {
          const text = JSON.stringify(value)
          const place = at % (text.length + 1)
          const changed = text.slice(0, place) + new_ + text.slice(place + 1)
          expect(outcome(() => read(cut(changed, cuts)))).toEqual(outcome(() => JSON.parse(changed)))
        },
      ),
      { numRuns: 1000 },
    )
  })

  test('keeps names that objects have themselves, as their own', () => {
    const text = '{"__proto__":{"x":1},"constructor":2,"__proto__":3,"a":1,"a":2}'
    const object = read([text]) as object
    expect(JSON.stringify(object)).toBe(JSON.stringify(JSON.parse(text)))
    expect(Object.getPrototypeOf(object)).toBe(Object.prototype)
    expect(({} as { x?: number }).x).toBeUndefined()
  })

  test('has limits that act while it is read', () => {
    const refusal = (text: string, limits: Partial<typeof wide>) => {
      const reader = new JsonReader({ ...wide, ...limits })
      return outcome(() => reader.push(text))
    }
    expect(refusal('[['.repeat(6), { maxDepth: 10 })).toBe('refused')
    expect(refusal('[['.repeat(5), { maxDepth: 10 })).not.toBe('refused')
    expect(refusal(`[${'{},'.repeat(20)}`, { maxValues: 20 })).toBe('refused')
    expect(refusal(`[${'0,'.repeat(20)}`, { maxValues: 20 })).not.toBe('refused')
    expect(refusal(`[${'0,'.repeat(200)}`, { maxValues: 20 })).toBe('refused')
    expect(refusal('1'.repeat(2000), {})).toBe('refused')
    expect(refusal('"', {})).not.toBe('refused')
    expect(() => read(['"abc'])).toThrow('ends inside a text')
    expect(() => read(['{"a": x}'])).toThrow('unexpected "x" at 6')
    expect(() => read(['{"a"', ': 1,', '}'])).toThrow('unexpected "}" at 8')
  })
})
