// Requests that are small to send and would be large to expand, deep, wide, ambiguous, circular or nonsense, each as the
// fields of a chat request. Those that make sense must be answered, the others may be refused with a 400.

type Fields = Readonly<Record<string, unknown>>

const times = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i))
const schema = (value: unknown): Fields => ({
  response_format: { type: 'json_schema', json_schema: { name: 'x', schema: value } },
})
const pattern = (text: string): Fields => schema({ type: 'string', pattern: text })

function nested(depth: number, inner: unknown, around: (schema: unknown) => unknown): unknown {
  let value = inner
  for (let i = 0; i < depth; i++) value = around(value)
  return value
}

/** Each definition is made of a reference to the next one. */
function chain(length: number, make: (next: { $ref: string }) => unknown, last: unknown = { type: 'null' }): unknown {
  const definitions = times(length, i => [`d${i}`, make({ $ref: `#/$defs/d${i + 1}` })])
  return { $ref: '#/$defs/d0', $defs: Object.fromEntries([...definitions, [`d${length}`, last]]) }
}

const arrayOf = (items: unknown) => ({ type: 'array', items })
const object = (properties: Record<string, unknown>) => ({ type: 'object', properties })
const wide = (count: number, value: (i: number) => unknown) =>
  object(Object.fromEntries(times(count, i => [`property_${i}`, value(i)])))
const tool = (parameters: unknown) => (i: number) => ({
  type: 'function',
  function: { name: `tool_${i}`, strict: true, parameters },
})
const emoji = (i: number) => `\\u{${(0x1f000 + 50 * i).toString(16)}}-\\u{${(0x1f000 + 50 * i + 20).toString(16)}}`

/** Plausible, if large: answered. */
export const ANSWERED: Readonly<Record<string, () => Fields>> = {
  '12 nested arrays': () => schema(nested(12, { type: 'integer' }, arrayOf)),
  '60 nested arrays': () => schema(nested(60, { type: 'integer' }, arrayOf)),
  '90 nested objects': () => schema(nested(90, { type: 'integer' }, inner => object({ a: inner, b: {} }))),
  'allOf of two references, 40 times': () => schema(chain(40, next => ({ allOf: [next, next] }), object({ a: {} }))),
  'anyOf of two references, 40 times': () => schema(chain(40, next => ({ anyOf: [next, next] }))),
  'anyOf of two arrays, 40 times': () =>
    schema(
      chain(40, next => ({
        anyOf: [
          { ...arrayOf(next), minItems: 1 },
          { ...arrayOf(next), maxItems: 3 },
        ],
      })),
    ),
  'a chain of 5,000 references': () => schema(chain(5000, next => next)),
  recursion: () => schema(object({ a: { anyOf: [{ $ref: '#' }, { type: 'null' }] }, b: { $ref: '#' } })),
  '8,000 prefixItems': () => schema({ prefixItems: times(8000, i => ({ const: i })), items: false }),
  '20,000 oneOf constants': () => schema({ oneOf: times(20_000, i => ({ const: `value ${i}` })) }),
  '50,000 values': () => schema({ enum: times(50_000, i => `value ${(i * 7919) % 100_003}`) }),
  '3,000 optional properties': () => schema(wide(3000, i => ({ type: 'integer', minimum: i }))),
  'a string of up to 100,000': () => schema({ type: 'string', maxLength: 100_000 }),
  'an array of up to 100,000': () => schema({ ...arrayOf({ type: 'string', minLength: 90_000 }), maxItems: 100_000 }),
  'repetitions of repetitions': () => pattern('^(a{1,1000}){1,1000}$'),
  'repetitions of repetitions of classes': () => pattern('^((([a-z]{1,90}){1,90}){1,90}){1,90}$'),
  'a pattern that backtracks for ever': () => pattern('^(a+)+(b|b)*(c?){300}$'),
  '1,000 classes of emoji': () => pattern(`^(${times(1000, i => `[${emoji(i)}]`).join('|')}|x)*$`),
  'patterns in properties': () => schema(wide(300, i => ({ type: 'string', pattern: `^[a-z]{1,${50 + i}}\\d+$` }))),
  'names by a pattern': () => schema({ type: 'object', patternProperties: { '^(a|b|ab){1,500}$': {} } }),
  'an ambiguous grammar': () => ({ grammar: 'root ::= s\ns ::= "a" | s s | s s s' }),
  'a grammar of repetitions': () => ({ grammar: `root ::= ${'('.repeat(6)}[a-z]${'{1,90})'.repeat(6)}` }),
}

/** Nonsense, or more than there is time for: answered or refused. */
export const REFUSED_OR_ANSWERED: Readonly<Record<string, () => Fields>> = {
  'a million values': () => schema({ enum: times(1_000_000, i => i) }),
  'a name of a megabyte': () => schema(object({ ['x'.repeat(1_000_000)]: {} })),
  '2^30 ways to choose': () =>
    schema({ allOf: times(30, i => ({ anyOf: [object({ [`a${i}`]: {} }), { required: [`b${i}`] }] })) }),
  'oneOf of 3,000 objects that may overlap': () => schema({ oneOf: times(3000, i => object({ [`a${i}`]: {} })) }),
  'allOf of itself': () => schema({ type: 'string', allOf: [{ $ref: '#' }] }),
  'allOf, anyOf and oneOf in a circle': () =>
    schema({
      $ref: '#/$defs/a',
      $defs: {
        a: { allOf: [{ $ref: '#/$defs/b' }] },
        b: { anyOf: [{ $ref: '#/$defs/c' }, { type: 'null' }] },
        c: { oneOf: [{ $ref: '#/$defs/a' }, { type: 'string' }] },
      },
    }),
  'a reference with a broken escape': () => schema({ $ref: '#/%E0%A4%A' }),
  'required that is a number': () => schema({ ...object({ a: {} }), required: 5 }),
  'required that is a number in allOf': () => schema({ allOf: [{ required: 5 }, { required: ['a'] }] }),
  not: () => schema({ not: {} }),
  'a billion characters at least': () => schema({ type: 'string', minLength: 1e9 }),
  'a billion items at least': () => schema({ type: 'array', minItems: 1e9 }),
  'a million properties at least': () => schema({ ...object({ a: {} }), minProperties: 1e6 }),
  '3,000 nested groups': () => pattern(`${'('.repeat(3000)}a${')'.repeat(3000)}`),
  'a pattern of 100,000 characters': () => pattern('(a|b)?'.repeat(17_000)),
  '1,000 tools': () => ({ tools: times(1000, tool(wide(60, () => ({ type: 'string' })))), tool_choice: 'required' }),
  '200 large tools': () => ({ tools: times(200, tool(wide(100, () => ({ maxLength: 9 })))), tool_choice: 'required' }),
  'a grammar that begins with itself': () => ({ grammar: 'root ::= a root | "x"\na ::= "y"?' }),
  'a grammar of 5,000 groups': () => ({ grammar: `root ::= ${'('.repeat(5000)}"a"${')'.repeat(5000)}` }),
}
