// Random JSON schemas out of the keywords that constrained decoding supports, with bounded strings and arrays so that a
// walk through them ends.
import fc from 'fast-check'

const name = fc.constantFrom('a', 'b', 'name', 'long name', 'quote"s', 'é', '$ref', 'x-y', 'constructor')
const bounds = (max: number) =>
  fc.tuple(fc.nat(max), fc.nat(max)).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const)

const leaf = fc.oneof(
  fc.constant({ type: 'null' }),
  fc.constant({ type: 'boolean' }),
  fc.constant({ type: 'integer' }),
  fc.constant({ type: 'number' }),
  bounds(12).map(([minLength, maxLength]) => ({ type: 'string', minLength, maxLength })),
  fc
    .constantFrom(
      '^[a-f]{2,5}$',
      '^(yes|no|maybe)$',
      '^\\d{3}-\\d{2}$',
      '^[^"\\\\]{1,4}$',
      '^\\w{1,6}( \\w{1,6}){0,2}$',
    )
    .map(pattern => ({ type: 'string', pattern })),
  fc
    .constantFrom('date', 'time', 'date-time', 'uuid', 'email', 'ipv4', 'uri', 'hostname')
    .map(format => ({ type: 'string', format })),
  fc
    .tuple(fc.integer({ min: -2000, max: 2000 }), fc.nat(5000))
    .map(([minimum, span]) => ({ type: 'integer', minimum, maximum: minimum + span })),
  fc
    .tuple(fc.integer({ min: -500, max: 500 }), fc.integer({ min: 10, max: 4000 }))
    .map(([low, span]) => ({ type: 'number', minimum: low / 100, exclusiveMaximum: (low + span) / 100 })),
  fc.integer({ min: -50, max: 50 }).map(exclusiveMinimum => ({ type: 'integer', exclusiveMinimum })),
  fc
    .uniqueArray(fc.oneof(fc.string({ maxLength: 6, unit: 'binary' }), fc.integer(), fc.constant(null), fc.boolean()), {
      minLength: 1,
      maxLength: 4,
    })
    .map(values => ({ enum: values })),
  fc
    .constantFrom<unknown>({ a: [1, 'x', null] }, [], {}, 'é"\\', -1.5e-7, false, [[{ b: {} }]])
    .map(value => ({ const: value })),
  fc.constant({ type: ['string', 'null'], maxLength: 5 }),
)

export function randomSchema(): fc.Arbitrary<unknown> {
  return fc.letrec<{ schema: unknown }>(tie => ({
    schema: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      leaf,
      fc
        .tuple(tie('schema'), bounds(4))
        .map(([items, [minItems, maxItems]]) => ({ type: 'array', items, minItems, maxItems })),
      fc
        .array(tie('schema'), { minLength: 1, maxLength: 3 })
        .map(prefixItems => ({ type: 'array', prefixItems, items: false })),
      fc
        .tuple(
          fc.uniqueArray(fc.tuple(name, tie('schema'), fc.boolean()), {
            minLength: 1,
            maxLength: 4,
            selector: ([key]) => key,
          }),
          fc.constantFrom(undefined, true, false),
        )
        .map(([members, additionalProperties]) => ({
          type: 'object',
          properties: Object.fromEntries(members.map(([key, schema]) => [key, schema])),
          required: members.filter(([, , required]) => required).map(([key]) => key),
          ...(additionalProperties === undefined ? {} : { additionalProperties }),
        })),
      fc.tuple(tie('schema'), fc.nat(3)).map(([additionalProperties, maxProperties]) => ({
        type: 'object',
        propertyNames: { pattern: '^[a-z]{1,5}$' },
        additionalProperties,
        maxProperties,
      })),
      fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map(anyOf => ({ anyOf })),
    ),
  })).schema
}
