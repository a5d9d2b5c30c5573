// Schemas as nobody should write them: every keyword with values of its own kind and of any other, references to anywhere,
// keywords that go together and ones that do not. Some of them are good schemas all the same.
import fc from 'fast-check'

const NAMES = ['a', 'b', 'c', 'x y', 'é', '__proto__', 'constructor']
const PATTERNS = [
  '^[a-c]{1,3}$',
  '^(a|b)*c$',
  'x',
  '^\\d+$',
  '[^a]',
  '(',
  '^(a)\\1$',
  '\\p{L}',
  '^[\\u{1f300}-\\u{1f320}a]{2}$',
]
const REFERENCES = [
  '#',
  '#/$defs/x',
  '#/$defs/y',
  '#/properties/a',
  '#/nowhere',
  '#/%E0%A4%A',
  '#/required/0',
  'x.json',
  '',
]

const garbage = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, 0, -1, 1.5, 1e9, 1e308, '', 'x', [], {}, [1], ['a'], [null], { a: 1 }),
  fc.jsonValue({ maxDepth: 2 }),
)
const small = fc.nat(4)
const bound = fc.constantFrom(-100, -1, 0, 0.25, 1, 10, 1e6, 1e16, 1e300)

export function garbageSchema(): fc.Arbitrary<unknown> {
  const { schema } = fc.letrec<{ schema: unknown; list: unknown[]; members: object }>(tie => {
    const keywords: Record<string, fc.Arbitrary<unknown>> = {
      type: fc.oneof(
        fc.constantFrom('object', 'array', 'string', 'number', 'integer', 'boolean', 'null'),
        fc.array(fc.constantFrom('object', 'array', 'string', 'number', 'integer', 'null'), { maxLength: 3 }),
      ),
      properties: tie('members'),
      required: fc.array(fc.constantFrom(...NAMES), { maxLength: 3 }),
      additionalProperties: tie('schema'),
      patternProperties: fc.dictionary(fc.constantFrom(...PATTERNS), tie('schema'), { maxKeys: 2 }),
      propertyNames: tie('schema'),
      minProperties: small,
      maxProperties: small,
      items: tie('schema'),
      prefixItems: tie('list'),
      minItems: small,
      maxItems: small,
      minLength: small,
      maxLength: small,
      pattern: fc.constantFrom(...PATTERNS),
      format: fc.constantFrom('date', 'email', 'uuid', 'iri', ''),
      minimum: bound,
      maximum: bound,
      exclusiveMinimum: bound,
      exclusiveMaximum: bound,
      multipleOf: fc.constantFrom(1, 2, 0.1),
      enum: fc.array(fc.jsonValue({ maxDepth: 1 }), { maxLength: 4 }),
      const: fc.jsonValue({ maxDepth: 1 }),
      anyOf: tie('list'),
      oneOf: tie('list'),
      allOf: tie('list'),
      $ref: fc.constantFrom(...REFERENCES),
      nullable: fc.boolean(),
      $defs: fc.record({ x: tie('schema'), y: tie('schema') }),
      description: fc.constant('words'),
      not: tie('schema'),
      uniqueItems: fc.constant(true),
    }
    const entry = fc
      .constantFrom(...Object.keys(keywords))
      .chain(keyword => fc.tuple(fc.constant(keyword), fc.oneof({ weight: 12, arbitrary: keywords[keyword] }, garbage)))
    const object = fc
      .uniqueArray(entry, { minLength: 1, maxLength: 4, selector: ([keyword]) => keyword })
      .map(entries => Object.fromEntries(entries))
    return {
      schema: fc.oneof(
        { maxDepth: 4, withCrossShrink: true },
        { weight: 1, arbitrary: fc.boolean() },
        { weight: 1, arbitrary: garbage },
        { weight: 10, arbitrary: object },
      ),
      list: fc.array(tie('schema'), { maxLength: 3 }),
      members: fc.dictionary(fc.constantFrom(...NAMES), tie('schema'), { maxKeys: 3 }),
    }
  })
  return schema
}
