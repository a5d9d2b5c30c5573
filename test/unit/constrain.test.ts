import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormatsModule from 'ajv-formats'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { ConstraintCompiler } from '#moeflux/constrain/constraint.js'
import { draftProgram, type GrammarSource, sourceText } from '#moeflux/constrain/grammarSource.js'
import { pieceBytes } from '#moeflux/constrain/vocabularyBytes.js'
import { GrammarError, UnsupportedSchemaError } from '#moeflux/errors.js'
import { decodePieces, demoVocabulary } from '../support/demoVocabulary.js'
import { randomSchema } from '../support/randomSchema.js'
import { allowedTokens, generator } from '../support/randomWalk.js'

const addFormats = addFormatsModule.default
const vocabulary = demoVocabulary()
const compiler = new ConstraintCompiler(vocabulary)
afterAll(() => compiler.close())

const ofSchema = (schema: unknown): GrammarSource => ({ kind: 'json_schema', schema })
const ofText = (text: string): GrammarSource => ({ kind: 'ebnf', text })
const draft = (schema: unknown) => draftProgram(sourceText(ofSchema(schema)))
const allowed = (mask: Uint32Array) => allowedTokens(mask, vocabulary.vocabSize)

/** Walks the grammar with uniformly random allowed tokens; past `patience` tokens it prefers what closes things. */
async function randomWalk(
  grammar: GrammarSource,
  random: () => number,
  patience = 40,
  limit = 600,
): Promise<string | null> {
  const constraint = await compiler.open(grammar)
  const pieces: string[] = []
  try {
    for (let step = 0; step < limit; step++) {
      const ids = allowed((await constraint.mask())!)
      expect(ids.length, `dead end after ${JSON.stringify(pieces.join(''))}`).toBeGreaterThan(0)
      const stop = ids.find(id => vocabulary.stopTokenIds.includes(id))
      if (stop !== undefined && (step > patience || ids.length <= vocabulary.stopTokenIds.length || random() < 0.3)) {
        return decodePieces(pieces)
      }
      const open = ids.filter(id => !vocabulary.stopTokenIds.includes(id))
      const closing = open.filter(id => /^["\]}0-9]$/.test(vocabulary.pieces[id]))
      const pool = step > patience && closing.length > 0 ? closing : open
      const token = pool[Math.floor(random() * pool.length)]
      pieces.push(vocabulary.pieces[token])
      constraint.accept(token)
    }
    return null
  } finally {
    constraint.close()
  }
}

describe('JSON schemas', () => {
  it('every text that a random schema lets through parses and validates', async () => {
    const ajv = new Ajv2020({ strict: false, ownProperties: true, allErrors: true, logger: false })
    addFormats(ajv)
    let finished = 0
    await fc.assert(
      fc.asyncProperty(randomSchema(), fc.integer({ min: 1, max: 2 ** 31 }), async (schema, seed) => {
        const text = await randomWalk(ofSchema(schema), generator(seed))
        if (text === null) return
        finished++
        const value: unknown = JSON.parse(text)
        const validate = ajv.compile(schema as object)
        expect(
          validate(value),
          `${JSON.stringify(schema)} let ${text} through: ${ajv.errorsText(validate.errors)}`,
        ).toBe(true)
      }),
      { numRuns: 60, seed: 7 },
    )
    expect(finished).toBeGreaterThan(45)
  }, 240_000)

  const refused: [string, unknown, string][] = [
    ['uniqueItems', { type: 'array', uniqueItems: true }, 'uniqueItems'],
    ['not', { not: { type: 'string' } }, 'not'],
    ['if', { type: 'integer', if: { minimum: 3 } }, 'if'],
    ['contains', { type: 'array', contains: {} }, 'contains'],
    ['multipleOf', { type: 'integer', multipleOf: 7 }, 'multipleOf'],
    ['dependentRequired', { type: 'object', dependentRequired: { a: ['b'] } }, 'dependentRequired'],
    ['overlapping oneOf', { oneOf: [{ type: 'number' }, { type: 'integer' }] }, 'oneOf'],
    ['pattern with a length', { type: 'string', pattern: '^a*$', maxLength: 3 }, 'pattern'],
    ['look-ahead', { type: 'string', pattern: '^(?=a)a$' }, 'pattern'],
    ['back reference', { type: 'string', pattern: '^(a)\\1$' }, 'pattern'],
    ['a broken pattern', { type: 'string', pattern: '(' }, 'pattern'],
    ['an unknown format', { type: 'string', format: 'iri' }, 'format'],
    ['$ref to itself', { $ref: '#' }, 'schema'],
    ['$ref to itself beside a way out', { anyOf: [{ $ref: '#' }, { type: 'null' }] }, '$ref'],
    ['endless recursion', { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }, 'schema'],
    ['a remote $ref', { $ref: 'https://example.com/schema.json' }, '$ref'],
    ['a $ref to nowhere', { $ref: '#/$defs/missing' }, '$ref'],
    ['an impossible range', { type: 'integer', minimum: 3, maximum: 2 }, 'schema'],
    ['an unknown type', { type: 'text' }, 'type'],
    ['a huge length', { type: 'string', maxLength: 10_000_000 }, 'maxLength'],
  ]
  it.each(refused)('refuses %s by name', (_name, schema, keyword) => {
    let thrown: unknown
    try {
      draft(schema)
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeInstanceOf(UnsupportedSchemaError)
    expect((thrown as UnsupportedSchemaError).keyword).toBe(keyword)
  })

  it('refuses a schema nested 10,000 deep without running out of stack', () => {
    let schema: unknown = { type: 'null' }
    for (let i = 0; i < 10_000; i++) schema = { type: 'array', items: schema }
    expect(() => draft(schema)).toThrow(UnsupportedSchemaError)
  })

  const accepted: [string, unknown, string[], string[]][] = [
    [
      'integer bounds',
      { type: 'integer', minimum: -12, exclusiveMaximum: 105 },
      ['-12', '0', '9', '104'],
      ['-13', '105', '-0', '007', '1e1'],
    ],
    [
      'number bounds',
      { type: 'number', minimum: 0.5, maximum: 1.5 },
      ['0.50', '1', '1.50', '0.99'],
      ['0.49', '1.51', '2', '0'],
    ],
    [
      'names with quotes',
      { type: 'object', properties: { 'a"b\n': { type: 'null' } }, required: ['a"b\n'] },
      ['{"a\\"b\\n":null}'],
      ['{}'],
    ],
    [
      'optional members',
      { type: 'object', properties: { a: { type: 'null' }, b: { type: 'null' } }, required: ['b'] },
      ['{"b":null}', '{"a":null, "b": null}'],
      ['{"a":null}', '{,"b":null}', '{"b":null,}'],
    ],
    [
      'string length in code points',
      { type: 'string', minLength: 2, maxLength: 2 },
      ['"😀é"', '"\\n\\""'],
      ['"a"', '"abc"', '"\n\n"'],
    ],
    ['a pattern found anywhere', { type: 'string', pattern: 'b+' }, ['"abbc"', '"b"'], ['"ac"', '""']],
    ['alternatives with anchors', { type: 'string', pattern: '^a$|^bc' }, ['"a"', '"bcd"'], ['"ab"', '"cbc"']],
    [
      'prefix items',
      { type: 'array', prefixItems: [{ type: 'null' }, { type: 'boolean' }], items: false, minItems: 1 },
      ['[null]', '[null,true]'],
      ['[]', '[null,true,1]'],
    ],
    [
      'recursion',
      {
        $ref: '#/$defs/n',
        $defs: {
          n: {
            type: 'object',
            properties: { n: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } },
            required: ['n'],
          },
        },
      },
      ['{"n":{"n":null}}'],
      ['{"n":{}}', '{"n":1}'],
    ],
    [
      'disjoint oneOf',
      {
        oneOf: [
          { type: 'object', properties: { k: { const: 'a' } }, required: ['k'] },
          { type: 'object', properties: { k: { const: 'b' } }, required: ['k'] },
        ],
      },
      ['{"k":"a"}', '{"k":"b"}'],
      ['{"k":"c"}'],
    ],
    [
      'allOf of objects',
      {
        allOf: [
          { type: 'object', properties: { a: { type: 'null' } }, required: ['a'] },
          { properties: { b: { const: 1 } }, required: ['b'] },
        ],
      },
      ['{"a":null,"b":1}'],
      ['{"a":null}'],
    ],
    ['anything', {}, ['{"a":[1,true,{"b":null}]}', '"x"', '-1.5e3'], ['{', '01', "'x'"]],
  ]
  it.each(accepted)('%s', async (_name, schema, good, bad) => {
    const grammar = ofSchema(schema)
    for (const text of good) expect(await matches(grammar, text), text).toBe(true)
    for (const text of bad) expect(await matches(grammar, text), text).toBe(false)
  })
})

/** Whether the grammar lets a whole text through, byte by byte. */
async function matches(grammar: GrammarSource, text: string): Promise<boolean> {
  const byteIds = new Map<number, number>()
  vocabulary.pieces.forEach((piece, id) => {
    if (Array.from(piece).length === 1) byteIds.set(pieceBytes(piece)![0], id)
  })
  const constraint = await compiler.open(grammar)
  try {
    for (const byte of new TextEncoder().encode(text)) {
      const id = byteIds.get(byte)!
      const mask = (await constraint.mask())!
      if (((mask[id >>> 5] >>> (id & 31)) & 1) === 0) return false
      constraint.accept(id)
    }
    const mask = (await constraint.mask())!
    return vocabulary.stopTokenIds.some(id => (mask[id >>> 5] >>> (id & 31)) & 1)
  } finally {
    constraint.close()
  }
}

describe('the grammar worker', () => {
  it('names a grammar that does not parse', async () => {
    await expect(compiler.open(ofText('root ::= ((('))).rejects.toThrow(/line 1, column/)
    await expect(compiler.open(ofText('other ::= "a"'))).rejects.toThrow(GrammarError)
  })

  it('refuses a token that does not follow', async () => {
    const constraint = await compiler.open(ofText('root ::= "a"'))
    constraint.accept(vocabulary.pieces.indexOf('b'))
    await expect(constraint.mask()).rejects.toThrow(GrammarError)
  })
})
