// JSON that is wrong in a place: a valid value as a tree of nodes, changed where its structure is, and written out again.
// Trees and not values, because duplicate names, numbers past every range and broken escapes have no value.

/** `{ kind: 'object', entries: [name, node][] }`, `{ kind: 'array', items }` or `{ kind: 'raw', text }`. */
export function jsonTree(value) {
  if (Array.isArray(value)) return { kind: 'array', items: value.map(jsonTree) }
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value).map(([name, inner]) => [JSON.stringify(name), jsonTree(inner)])
    return { kind: 'object', entries }
  }
  return raw(JSON.stringify(value))
}

export function jsonText(node) {
  if (node.kind === 'raw') return node.text
  if (node.kind === 'array') return `[${node.items.map(jsonText).join(',')}]`
  return `{${node.entries.map(([name, value]) => `${name}:${jsonText(value)}`).join(',')}}`
}

/**
 * The text of `value` with one to `most` things wrong; a share of them is no JSON any more. `names` and `values` (as texts)
 * are strange to this value alone.
 */
export function brokenJson(value, random, { most = 3, textShare = 0.2, names = [], values = [] } = {}) {
  const strange = { names: [...STRANGE_NAMES, ...names], values }
  const root = { kind: 'array', items: [jsonTree(value)] } // so that the value itself has a place too
  for (let i = random.between(1, most); i > 0; i--) breakTree(root, random, strange)
  const text = root.items.map(jsonText).join(',')
  return random.chance(textShare) ? breakText(text, random) : text
}

const raw = text => ({ kind: 'raw', text })

export const STRANGE_NUMBERS = [
  ...['0', '-0', '-1', '1', '0.5', '-1.5', '1e308', '1e999', '-1e999', '1e-320', '2147483647', '2147483648'],
  ...['4294967295', '4294967296', '9007199254740991', '9007199254740993', '18446744073709551616', '65536', '65535'],
]
const STRANGE_TEXTS = [
  ...['""', '"x"', '"0"', '"-1"', '"null"', '"__proto__"', '"constructor"', '"\\u0000"', '"\\ud800"', '"\\udfff x"'],
  ...['"../../etc/passwd"', '"/etc/passwd"', '"a\\\\b"', '"\\u202e"', '"👩‍👩‍👧‍👦"', '" "', '"\\n"'],
]
const STRANGE_NAMES = [
  '"__proto__"',
  '"constructor"',
  '"toString"',
  '""',
  '"length"',
  '"\\ud800"',
  '"0"',
  '"type"',
  '"\\u0061"',
]
const STRANGE_VALUES = ['null', 'true', 'false', '[]', '{}', '[[]]', '{"":{}}', '[null]', '{"__proto__":{}}']

function strangeLeaf(random, values = []) {
  const text = random.weighted([
    [4, () => random.pick(STRANGE_NUMBERS)],
    [3, () => random.pick(STRANGE_TEXTS)],
    [3, () => random.pick(STRANGE_VALUES)],
    [values.length > 0 ? 6 : 0, () => random.pick(values)],
    [0.3, () => JSON.stringify('x'.repeat(100_000))],
    [0.3, () => `[${Array.from({ length: 20_000 }, (_, i) => i).join(',')}]`],
  ])
  return raw(text())
}

function breakTree(root, random, { names, values }) {
  const places = placesOf(root)
  if (places.length === 0) return // nothing is left of it
  const place = random.pick(places)
  const change = random.weighted([
    [6, () => place.set(strangeLeaf(random, values))],
    [4, () => place.set(tweaked(place.node, random))],
    [3, () => place.remove()],
    [2, () => place.repeat(random.chance(0.5) ? place.node : strangeLeaf(random, values))],
    [2, () => place.rename?.(random.pick(names))],
    [2, () => place.node.entries?.push([random.pick(names), strangeLeaf(random, values)])],
    [2, () => place.set(structuredClone(random.pick(places).node))],
    [1, () => place.set({ kind: 'array', items: [place.node] })],
    [1, () => place.set({ kind: 'object', entries: [['"value"', place.node]] })],
    [1, () => grow(place.node, random)],
    [0.4, () => place.set(raw(nested(random)))],
  ])
  change()
}

/** Every value of the tree, with what can be done where it stands. */
function placesOf(root) {
  const places = []
  const visit = node => {
    if (node.kind === 'array') {
      for (const [i, inner] of node.items.entries()) {
        places.push({
          node: inner,
          set: value => (node.items[i] = value),
          remove: () => node.items.splice(i, 1),
          repeat: value => node.items.splice(i, 0, value),
        })
        visit(inner)
      }
    } else if (node.kind === 'object') {
      for (const entry of node.entries) {
        places.push({
          node: entry[1],
          set: value => (entry[1] = value),
          remove: () => node.entries.splice(node.entries.indexOf(entry), 1),
          repeat: value => node.entries.push([entry[0], value]),
          rename: name => (entry[0] = name),
        })
        visit(entry[1])
      }
    }
  }
  visit(root)
  return places
}

/** A value that is nearly right: one more, twice as much, a letter less. */
function tweaked(node, random) {
  if (node.kind !== 'raw') return strangeLeaf(random)
  const number = Number(node.text)
  if (node.text.startsWith('"')) {
    const text = JSON.parse(node.text)
    const changes = [
      text.slice(1),
      `${text}x`,
      text.toUpperCase(),
      text + text,
      [...text].reverse().join(''),
      `${text}\0`,
    ]
    return raw(JSON.stringify(random.pick(changes)))
  }
  if (Number.isNaN(number)) return strangeLeaf(random)
  const changes = [
    number + 1,
    number - 1,
    number * 2,
    number / 2,
    -number,
    number + 0.5,
    number * 1000,
    number * 2 ** 20,
  ]
  return raw(random.chance(0.1) ? `"${node.text}"` : String(random.pick(changes)))
}

function grow(node, random) {
  if (node.kind === 'array' && node.items.length > 0) {
    for (let i = random.between(1, 500); i > 0; i--) node.items.push(random.pick(node.items))
  } else if (node.kind === 'object') {
    for (let i = random.between(1, 20); i > 0; i--) node.entries.push([random.pick(STRANGE_NAMES), strangeLeaf(random)])
  }
}

function nested(random) {
  const depth = random.pick([10, 63, 64, 65, 200, 1000, 100_000])
  return random.chance(0.5) ? '['.repeat(depth) + ']'.repeat(depth) : `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
}

/** Wrong as text: cut, with more behind it, or with a letter that does not belong. */
export function breakText(text, random) {
  const at = random.below(text.length + 1)
  const boundary = nextBoundary(text, at)
  return random.pick([
    () => text.slice(0, at),
    () => text.slice(0, boundary),
    () => text.slice(0, boundary) + text.slice(boundary + 1),
    () =>
      text.slice(0, at) + random.pick(['"', '{', '}', '[', ']', ',', ':', '\\', '\0', '\u2028', 'é']) + text.slice(at),
    () => `\ufeff${text}`,
    () => `${text}${random.pick([' ', '\n\n', '}', 'x', text])}`,
    () => text.replaceAll(':', ' : \n'),
    () => '',
  ])()
}

function nextBoundary(text, from) {
  const found = text.slice(from).search(/[{}[\]:,"]/)
  return found < 0 ? text.length : from + found
}
