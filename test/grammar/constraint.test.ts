// Grammars of JSON schemas, regexes and EBNF against a plain matcher, and the workers that make them.
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormatsModule from 'ajv-formats'
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import { ClosedError, GrammarError, UnsupportedSchemaError } from '#moeflux/base/errors.js'
import { pieceBytes } from '#moeflux/grammar/automaton/vocabularyBytes.js'
import { ConstraintCompiler } from '#moeflux/grammar/constraint.js'
import { draftProgram, sourceText } from '#moeflux/grammar/source/grammarSource.js'
import type { GrammarSource } from '#moeflux/grammar/source/sourceKinds.js'
import type { GrammarRequest, StartGrammarWorker } from '#moeflux/grammar/workers/grammarMessages.js'
import { startNodeGrammarWorker } from '#moeflux/grammar/workers/nodeStartGrammarWorker.js'
import { garbageSchema } from '../support/faults/garbageSchema.js'
import { decodePieces, demoVocabulary } from '../support/models/demoVocabulary.js'
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

function nestedArrays(depth: number): unknown {
  let schema: unknown = { type: 'integer' }
  for (let i = 0; i < depth; i++) schema = { type: 'array', items: schema }
  return schema
}

function sharedDemands(depth: number): unknown {
  const entries: [string, unknown][] = [[`d${depth}`, { type: 'object', properties: { a: { type: 'string' } } }]]
  for (let i = 0; i < depth; i++) {
    const next = { $ref: `#/$defs/d${i + 1}` }
    entries.push([`d${i}`, { allOf: [next, next] }])
  }
  return { $ref: '#/$defs/d0', $defs: Object.fromEntries(entries) }
}

describe('JSON schemas', () => {
  test('every text that a random schema lets through parses and validates', async () => {
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
    ['allOf of itself', { type: 'string', allOf: [{ $ref: '#' }] }, 'schema'],
    [
      'allOf in a circle',
      { $ref: '#/$defs/a', $defs: { a: { allOf: [{ $ref: '#/$defs/b' }] }, b: { $ref: '#/$defs/a' } } },
      'schema',
    ],
    ['a $ref with a broken escape', { $ref: '#/%E0%A4%A' }, '$ref'],
    ['a $ref to something else', { required: ['a'], $ref: '#/required' }, '$ref'],
    ['required that is no list', { type: 'object', properties: { a: {} }, required: 5 }, 'required'],
    ['required of numbers', { allOf: [{ required: [1] }, { required: ['a'] }] }, 'required'],
    ['properties that are a list', { allOf: [{ properties: [] }, { properties: {} }] }, 'properties'],
    ['a minimum that is text', { allOf: [{ minimum: '1' }, { minimum: 2 }] }, 'minimum'],
    ['nothing to choose from', { anyOf: [] }, 'anyOf'],
    ['3,000 nested groups', { type: 'string', pattern: `${'('.repeat(3000)}a${')'.repeat(3000)}` }, 'pattern'],
    ['too many values', { enum: Array.from({ length: 300_000 }, (_, i) => i) }, 'schema'],
    ['too many letters', { const: 'x'.repeat(2_000_000) }, 'schema'],
    [
      '2^30 ways to choose',
      { allOf: Array.from({ length: 30 }, (_, i) => ({ anyOf: [{ required: [`a${i}`] }, { required: [`b${i}`] }] })) },
      'schema',
    ],
    ['a bound past all numbers that are written', { type: 'number', minimum: 1e300 }, 'schema'],
    [
      'names with alternatives',
      { type: 'object', propertyNames: { anyOf: [{ maxLength: 1 }, { minLength: 3 }] } },
      'propertyNames',
    ],
    ['options without types that may overlap', { oneOf: [{ minLength: 3 }, { minimum: 5 }] }, 'oneOf'],
    [
      'constants that are equal in another order',
      { oneOf: [{ const: { a: 1, b: 2 } }, { const: { b: 2, a: 1 } }] },
      'oneOf',
    ],
  ]
  test.each(refused)('refuses %s by name', (_name, schema, keyword) => {
    let thrown: unknown
    try {
      draft(schema)
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeInstanceOf(UnsupportedSchemaError)
    expect((thrown as UnsupportedSchemaError).keyword).toBe(keyword)
  })

  test('says where in a schema the trouble is, shortly', () => {
    const where = (schema: unknown) => {
      try {
        draft(schema)
      } catch (error) {
        return (error as Error).message
      }
    }
    const inner = { type: 'object', properties: { 'b/c': { type: 'array', items: { anyOf: [{ minLength: 'x' }] } } } }
    expect(where({ type: 'array', items: inner })).toContain('at #/items/properties/b~1c/items/anyOf/0: minLength')
    expect(where({ $ref: '#/$defs/d', $defs: { d: { allOf: [{}, { not: {} }] } } })).toContain(
      'at #/$defs/d/allOf/1: not',
    )
    const endless = { type: 'object', properties: { ['x'.repeat(50_000)]: { pattern: '('.repeat(50_000) } } }
    expect(where(endless)?.length).toBeLessThan(1000)
  })

  test('makes a grammar in proportion to the schema', () => {
    const size = (schema: unknown) => draft(schema).kinds.length
    const nested = (depth: number) => {
      let schema: unknown = { type: 'integer' }
      for (let i = 0; i < depth; i++) schema = { type: 'array', items: schema, minItems: i % 2 }
      return schema
    }
    const twice = (depth: number, of: (ref: unknown) => unknown) => {
      const names = Array.from({ length: depth }, (_, i) => [`d${i}`, of({ $ref: `#/$defs/d${i + 1}` })])
      return { $ref: '#/$defs/d0', $defs: Object.fromEntries([...names, [`d${depth}`, { type: 'object' }]]) }
    }
    expect(size(nested(60))).toBeLessThan(6 * size(nested(12)))
    expect(size(twice(40, ref => ({ allOf: [ref, ref] })))).toBe(size(twice(1, ref => ({ allOf: [ref, ref] }))))
    expect(size(twice(40, ref => ({ anyOf: [ref, ref] })))).toBe(size({ type: 'object' }))
    const pair = (ref: unknown) => ({ type: 'object', properties: { a: ref, b: ref } })
    expect(size(twice(40, pair))).toBeLessThan(41 * size(twice(1, pair)))
    const text = { type: 'string', maxLength: 900_000 }
    expect(size(text)).toBe(size({ type: 'string', maxLength: 9 }))
    expect(size({ type: 'array', items: text, maxItems: 900_000 })).toBe(
      size({ type: 'array', items: text, maxItems: 9 }),
    )
    const heads = (count: number) => ({ prefixItems: Array.from({ length: count }, (_, i) => ({ const: i % 7 })) })
    expect(size(heads(8000))).toBeLessThan(12 * size(heads(800)))
    const words = (count: number) => Array.from({ length: count }, (_, i) => ({ const: `word ${i}` }))
    expect(size({ oneOf: words(20_000) })).toBeLessThan(20_000)
  })

  test('takes any garbage for a schema that it can keep, or refuses it by name and place', async () => {
    const ajv = new Ajv2020({ strict: false, ownProperties: true, logger: false })
    addFormats(ajv)
    let kept = 0
    await fc.assert(
      fc.asyncProperty(garbageSchema(), fc.integer({ min: 1, max: 2 ** 31 }), async (schema, seed) => {
        try {
          draft(schema)
        } catch (error) {
          expect(error, JSON.stringify(schema)).toBeInstanceOf(UnsupportedSchemaError)
          expect((error as UnsupportedSchemaError).path).toMatch(/^#/)
          return
        }
        const text = await randomWalk(ofSchema(schema), generator(seed), 20, 60)
        if (text === null) return
        const value: unknown = JSON.parse(text)
        // The validator takes these names for its own.
        if (/__proto__|constructor/.test(JSON.stringify(schema))) return
        let isValid: boolean
        try {
          isValid = ajv.validate(schema as object, value) as boolean
        } catch {
          return // it refuses some schemas, and runs out of stack in others
        }
        expect(isValid, `${JSON.stringify(schema)} let ${text} through: ${ajv.errorsText()}`).toBe(true)
        kept++
      }),
      { numRuns: 800, seed: 21 },
    )
    expect(kept).toBeGreaterThan(50)
  }, 120_000)

  test('refuses a schema nested 10,000 deep without running out of stack', () => {
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
    [
      '60 nested arrays',
      nestedArrays(60),
      [`${'['.repeat(60)}7${']'.repeat(60)}`, '[[],[]]'],
      ['7', `${'['.repeat(61)}7${']'.repeat(61)}`],
    ],
    ['allOf of two references, 40 times over', sharedDemands(40), ['{"a":"x"}', '{}'], ['{"a":1}', '{"b":"x"}']],
    [
      'properties that another member of allOf does not know',
      {
        allOf: [
          { type: 'object', properties: { a: { type: 'null' } }, additionalProperties: false },
          { properties: { b: { type: 'null' } } },
        ],
      },
      ['{"a":null}', '{}'],
      ['{"b":null}', '{"a":null,"b":null}'],
    ],
    [
      'alternatives on both sides of allOf',
      {
        allOf: [
          { anyOf: [{ type: 'integer' }, { type: 'string', maxLength: 2 }] },
          { anyOf: [{ type: 'string' }, { type: 'null' }] },
        ],
      },
      ['"ab"', '""'],
      ['1', 'null', '"abc"'],
    ],
    [
      'an enumeration and a type elsewhere',
      { enum: ['a', 1, null], allOf: [{ type: ['string', 'null'] }] },
      ['"a"', 'null'],
      ['1'],
    ],
    [
      'two enumerations',
      { allOf: [{ enum: [1, { a: 1, b: 2 }] }, { enum: [{ b: 2, a: 1 }, 3] }] },
      ['{"a":1,"b":2}'],
      ['1', '3'],
    ],
    ['nullable', { type: 'string', nullable: true, minLength: 1 }, ['null', '"a"'], ['""']],
    [
      'characters past the first plane',
      { type: 'string', pattern: '^[\\u{1f600}-\\u{1f64f}]é{2}$' },
      ['"😀éé"'],
      ['"🚀éé"', '"😀é"', '"\\u00e9"'],
    ],
    [
      'a long string',
      { type: 'string', minLength: 300, maxLength: 301 },
      [`"${'é'.repeat(300)}"`, `"${'x'.repeat(301)}"`],
      [`"${'x'.repeat(299)}"`, `"${'x'.repeat(302)}"`],
    ],
    [
      'items that are each their own, and some more',
      { prefixItems: [{ const: 1 }, { const: 2 }, { const: 3 }], items: { const: 4 }, minItems: 2, maxItems: 5 },
      ['[1,2]', '[1,2,3]', '[1,2,3,4,4]'],
      ['[1]', '[]', '[1,2,4]', '[1,2,3,4,4,4]'],
    ],
    [
      'members within counts',
      {
        properties: { a: { const: 1 }, b: { const: 2 }, c: { const: 3 } },
        required: ['c'],
        minProperties: 2,
        maxProperties: 2,
      },
      ['{"a":1,"c":3}'],
      ['{"c":3}', '{"a":1,"b":2,"c":3}', '{"a":1,"b":2}'],
    ],
    ['anything', {}, ['{"a":[1,true,{"b":null}]}', '"x"', '-1.5e3'], ['{', '01', "'x'"]],
  ]
  test.each(accepted)('%s', async (_name, schema, good, bad) => {
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

/** Workers that never answer a request that `isStuck` names, as if they worked on it for ever. */
function stuckWorkers(isStuck: (request: GrammarRequest) => boolean) {
  const seen = { started: 0, ended: 0, stuck: 0 }
  const startWorker: StartGrammarWorker = tokens => {
    const worker = startNodeGrammarWorker(tokens)
    let stuck = false // and with it all that comes after
    seen.started++
    return {
      ...worker,
      post(request) {
        const sticks = isStuck(request)
        if (sticks) seen.stuck++
        stuck ||= sticks
        if (!stuck) worker.post(request)
      },
      terminate() {
        seen.ended++
        worker.terminate()
      },
    }
  }
  return { seen, startWorker }
}

const tokenOf = (text: string) => vocabulary.pieces.indexOf(text)

describe('the grammar workers', () => {
  test('stop a draft that takes too long, and nobody else notices', async () => {
    const { seen, startWorker } = stuckWorkers(request => request.type === 'draft' && request.source.includes('bomb'))
    const own = new ConstraintCompiler(vocabulary, { startWorker, timeoutMs: 700 })
    const answer = await own.open(ofText('root ::= "a" [0-9] "b"'))
    answer.accept(tokenOf('a'))
    const bombs = [1, 2].map(i => own.open(ofText(`root ::= "bomb ${i}"`)))
    const other = own.open(ofText('root ::= "c"'))
    for (const bomb of bombs) await expect(bomb).rejects.toThrow(GrammarError)
    expect(allowed((await (await other).mask())!)).toEqual([tokenOf('c')])
    answer.accept(tokenOf('7'))
    expect(allowed((await answer.mask())!)).toEqual([tokenOf('b')])
    expect(seen).toEqual({ started: 3, ended: 2, stuck: 2 }) // one that walks, two that drafted
    await own.close()
  })

  test('stop a mask that takes too long with its answer alone; the others go on from their tokens', async () => {
    const guilty = tokenOf('x')
    const { seen, startWorker } = stuckWorkers(request => request.type === 'accept' && request.token === guilty)
    const own = new ConstraintCompiler(vocabulary, { startWorker, timeoutMs: 700 })
    const open = () => own.open(ofText('root ::= "a" [0-9]{2} "b" | "x" "y"'))
    const [one, two, bomb] = await Promise.all([open(), open(), open()])
    for (const token of ['a', '1']) one.accept(tokenOf(token))
    bomb.accept(guilty)
    two.accept(tokenOf('a'))
    await expect(bomb.mask()).rejects.toThrow(GrammarError)
    one.accept(tokenOf('2'))
    expect(allowed((await one.mask())!)).toEqual([tokenOf('b')])
    expect(allowed((await two.mask())!)).toContain(tokenOf('1'))
    expect(allowed((await two.mask())!)).not.toContain(tokenOf('b'))
    expect(seen.stuck).toBe(1)
    await own.close()
  })

  test('stop working for a client that left', async () => {
    const { seen, startWorker } = stuckWorkers(request => request.type === 'draft' && request.source.includes('bomb'))
    const own = new ConstraintCompiler(vocabulary, { startWorker, timeoutMs: 60_000 })
    const client = new AbortController()
    const bomb = own.open(ofText('root ::= "bomb"'), client.signal)
    const other = own.open(ofText('root ::= "a much longer text than the one before"'))
    while (seen.stuck === 0) await new Promise(resolve => setTimeout(resolve, 5))
    client.abort(new DOMException('left', 'AbortError'))
    await expect(bomb).rejects.toThrow('left')
    expect(seen.ended).toBe(1)
    expect(await (await other).mask()).not.toBeNull()
    await own.close()
  })

  test('are stopped in the middle of their work when the model closes', async () => {
    const { seen, startWorker } = stuckWorkers(request => request.type === 'draft')
    const own = new ConstraintCompiler(vocabulary, { startWorker, timeoutMs: 60_000 })
    const bomb = own.open(ofText('root ::= "bomb"'))
    while (seen.stuck === 0) await new Promise(resolve => setTimeout(resolve, 5))
    await own.close()
    await expect(bomb).rejects.toThrow(ClosedError)
    expect(seen.ended).toBe(seen.started)
    await expect(own.open(ofText('root ::= "a"'))).rejects.toThrow(ClosedError)
  })

  test('make a grammar once for the same source', async () => {
    let drafts = 0
    const { startWorker } = stuckWorkers(request => {
      if (request.type === 'draft') drafts++
      return false
    })
    const own = new ConstraintCompiler(vocabulary, { startWorker })
    const schema = { type: 'object', properties: { a: { type: 'string' } } }
    const constraints = await Promise.all([1, 2, 3].map(() => own.open(ofSchema(structuredClone(schema)))))
    for (const constraint of constraints) constraint.close()
    ;(await own.open(ofSchema(schema))).close()
    expect(drafts).toBe(1)
    await own.open(ofSchema({ ...schema, required: ['a'] }))
    expect(drafts).toBe(2)
    await own.close()
  })

  test('name a grammar that does not parse', async () => {
    await expect(compiler.open(ofText('root ::= ((('))).rejects.toThrow(/line 1, column/)
    await expect(compiler.open(ofText('other ::= "a"'))).rejects.toThrow(GrammarError)
  })

  test('refuse a token that does not follow', async () => {
    const constraint = await compiler.open(ofText('root ::= "a"'))
    constraint.accept(vocabulary.pieces.indexOf('b'))
    await expect(constraint.mask()).rejects.toThrow(GrammarError)
  })
})
