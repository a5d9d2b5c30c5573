// Schemas and patterns that are small to send and large to expand, or that make no sense. Each may be answered or refused
// with a 400; none may be a 500, take the server's time from others, or its memory.

const wrap = schema => ({ type: 'object', properties: { a: schema }, required: ['a'] })
const times = (count, make) => Array.from({ length: count }, (_, i) => make(i))
const nested = (depth, inner, around) => {
  let schema = inner
  for (let i = 0; i < depth; i++) schema = around(schema)
  return schema
}

/** Each level refers to the one below it twice. */
function doublingDefinitions(keyword, levels) {
  const definitions = { d0: { type: 'object', properties: { x: { type: 'integer' } } } }
  for (let i = 1; i <= levels; i++) {
    definitions[`d${i}`] = { [keyword]: [{ $ref: `#/$defs/d${i - 1}` }, { $ref: `#/$defs/d${i - 1}` }] }
  }
  return { $defs: definitions, $ref: `#/$defs/d${levels}` }
}

/** Built when asked for: some are megabytes. */
export const BOMBS = {
  'allOf of two references, 40 levels': () => doublingDefinitions('allOf', 40),
  'anyOf of two references, 40 levels': () => doublingDefinitions('anyOf', 40),
  '60 nested arrays': () => nested(60, { type: 'string' }, items => ({ type: 'array', items })),
  '90 nested objects': () => nested(90, { type: 'string' }, wrap),
  '8,000 prefixItems': () => ({ type: 'array', prefixItems: times(8000, () => ({ type: 'integer' })), items: false }),
  '20,000 oneOf constants': () => ({ oneOf: times(20_000, i => ({ const: `value ${i}` })) }),
  '200,000 enum values': () => ({ enum: times(200_000, i => `value ${i}`) }),
  'an allOf of itself': () => ({ $defs: { a: { allOf: [{ $ref: '#/$defs/a' }] } }, $ref: '#/$defs/a' }),
  'references in a ring': () => ({
    $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } },
    $ref: '#/$defs/a',
  }),
  'a reference with a broken escape': () => ({ $ref: '#/$defs/%E0%A4%A' }),
  'required is a number': () => ({ type: 'object', properties: { a: { type: 'string' } }, required: 5 }),
  'properties is a list': () => ({ type: 'object', properties: [{ type: 'string' }] }),
  '3,000 nested groups': () => ({ type: 'string', pattern: `^${'('.repeat(3000)}a${')'.repeat(3000)}$` }),
  'repetitions of repetitions': () => ({ type: 'string', pattern: '^((a{1,100}){1,100}){1,100}$' }),
  'a catastrophic pattern': () => ({ type: 'string', pattern: '^(a+)+(b|b)*(c?){300}$' }),
  'a billion characters at least': () => ({ type: 'string', minLength: 1e9 }),
  'a million items at least': () => ({ type: 'array', items: { type: 'integer' }, minItems: 1e6 }),
  '5,000 properties': () => ({
    type: 'object',
    properties: Object.fromEntries(times(5000, i => [`p${i}`, { type: 'string' }])),
  }),
  '300 patterns in one object': () => ({
    type: 'object',
    properties: Object.fromEntries(times(300, i => [`p${i}`, { type: 'string', pattern: `^[a-z]{1,${50 + i}}\\d+$` }])),
  }),
}

/** Deep, and as plausible as any: this one must be answered. */
export const DEEP_SCHEMA = nested(12, { type: 'integer', minimum: 0, maximum: 9 }, items => ({
  type: 'array',
  items,
  minItems: 1,
  maxItems: 2,
}))
