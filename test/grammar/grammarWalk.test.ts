// The walk through grammars, against their meaning by definition: which tokens may come next, exactly.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { GrammarError } from '#moeflux/base/errors.js'
import type { CharRange } from '#moeflux/grammar/automaton/byteAutomaton.js'
import { DEFAULT_WALK_LIMITS, GrammarWalk, type WalkLimits } from '#moeflux/grammar/automaton/grammarWalk.js'
import { type Program, UNBOUNDED } from '#moeflux/grammar/automaton/program.js'
import { AmbiguousGrammarError } from '#moeflux/grammar/automaton/stackTables.js'
import { TokenTrie } from '#moeflux/grammar/automaton/tokenTrie.js'
import { pieceBytes, vocabularyBytes } from '#moeflux/grammar/automaton/vocabularyBytes.js'
import { JsonText } from '#moeflux/grammar/schema/jsonText.js'
import { boundedNumber } from '#moeflux/grammar/schema/numberGrammar.js'
import { ebnfProgram } from '#moeflux/grammar/source/ebnf.js'
import { GrammarBuilder, GrammarSizeError, type Node } from '#moeflux/grammar/source/grammarBuilder.js'
import type { Expression } from '#moeflux/grammar/source/leftRecursion.js'
import { ebnfText, naiveGrammar } from '../support/naiveGrammar.js'
import { generator } from '../support/randomWalk.js'

/** Tokens of letters alone, the last one ends the answer. */
async function vocabularyOf(pieces: readonly string[]) {
  const piece = (token: number) => pieces[token] ?? ''
  const tokens = await vocabularyBytes({ piece, vocabSize: pieces.length + 1, stopTokenIds: [pieces.length] })
  return { tokens, trie: new TokenTrie(tokens), pieces }
}

const LETTERS = await vocabularyOf(['a', 'b', 'c', 'ab', 'ba', 'ca', 'aaa', 'cab', 'bcb', 'cc', 'aab'])

function allowed(walk: ReturnType<GrammarWalk['open']>, size: number): number[] {
  const mask = walk.mask()
  return Array.from({ length: size }, (_, id) => id).filter(id => (mask[id >>> 5] >>> (id & 31)) & 1)
}

function expression(names: readonly string[]): fc.Arbitrary<Expression> {
  const leaf = fc.oneof(
    fc.constantFrom('a', 'b', 'c', 'ab', 'cab', '').map((text): Expression => ({ kind: 'text', text })),
    fc
      .constantFrom<CharRange>([0x61, 0x62], [0x61, 0x63], [0x62, 0x63])
      .map((range): Expression => ({ kind: 'class', ranges: [range] })),
    fc.constantFrom(...names).map((name): Expression => ({ kind: 'rule', name })),
  )
  return fc.letrec<{ expression: Expression }>(tie => ({
    expression: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      leaf,
      fc
        .array(tie('expression'), { minLength: 2, maxLength: 3 })
        .map((items): Expression => ({ kind: 'sequence', items })),
      fc
        .array(tie('expression'), { minLength: 2, maxLength: 3 })
        .map((options): Expression => ({ kind: 'choice', options })),
      fc
        .tuple(
          tie('expression'),
          fc.constantFrom([0, 1], [0, UNBOUNDED], [1, UNBOUNDED], [2, 4], [0, 7], [5, 9], [3, UNBOUNDED]),
        )
        .map(([item, [min, max]]): Expression => ({ kind: 'repeat', item, min, max })),
    ),
  })).expression
}

/** Each rule has a text that ends, so that every beginning can be finished. */
const grammar = fc.tuple(...['root', 'p', 'q'].map(() => expression(['root', 'p', 'q']))).map(bodies => {
  const ending: Expression = { kind: 'text', text: 'cc' }
  return new Map(
    ['root', 'p', 'q'].map((name, i) => [name, { kind: 'choice', options: [bodies[i], ending] } as Expression]),
  )
})

describe('a walk', () => {
  test('allows exactly the tokens that some text of a random grammar goes on with', async () => {
    let walked = 0
    await fc.assert(
      fc.property(grammar, fc.integer({ min: 1, max: 2 ** 31 }), (rules, seed) => {
        let program: Program
        try {
          program = ebnfProgram(ebnfText(rules))
        } catch (error) {
          // Some ways to begin with oneself are refused by name.
          if (error instanceof GrammarError && /begins? with/.test(error.message)) return
          throw error
        }
        const random = generator(seed)
        const walk = new GrammarWalk(program, LETTERS)
        const walker = walk.open()
        const naive = naiveGrammar(rules)
        const { pieces } = LETTERS
        let text = ''
        for (let step = 0; step < 5; step++) {
          const want = pieces.flatMap((piece, id) => (naive.isBeginning(text + piece) ? [id] : []))
          const stop = naive.matches(text) ? [pieces.length] : []
          const got = allowed(walker, pieces.length + 1)
          expect(got, `${ebnfText(rules)}\nafter ${JSON.stringify(text)}`).toEqual([...want, ...stop])
          if (want.length === 0) break
          const token = want[Math.floor(random() * want.length)]
          walker.accept(token)
          text += pieces[token]
          walked++
          if (step === 2) walk.forget() // what was found out is gone, the place is not
        }
      }),
      { numRuns: 150, seed: 3 },
    )
    expect(walked).toBeGreaterThan(300)
  })

  test.each([
    [
      'sum ::= sum "+" term | term\nterm ::= term "*" num | num\nnum ::= [0-9]+',
      ['1', '1+2', '1*2+3*4+5'],
      ['+', '1+'],
    ],
    ['sum ::= other | "1"\nother ::= sum "a" | sum "b" other | "2"', ['1', '2', '1a', '1b2', '2ab1aa'], ['a', '1b']],
    ['sum ::= "" | sum "ab"', ['', 'ab', 'abab'], ['a', 'aba']],
    ['sum ::= (sum "," | "") "1"', ['1', '1,1,1'], [',1', '11']],
  ])('reads rules that begin with themselves: %#', async (text, good, bad) => {
    const digits = await vocabularyOf([...'0123456789+*,ab'])
    const program = ebnfProgram(`root ::= sum\n${text}`)
    const accepts = (input: string) => {
      const walker = new GrammarWalk(program, digits).open()
      try {
        for (const char of input) walker.accept(digits.pieces.indexOf(char))
      } catch {
        return false
      }
      return allowed(walker, digits.pieces.length + 1).includes(digits.pieces.length)
    }
    for (const input of good) expect(accepts(input), input).toBe(true)
    for (const input of bad) expect(accepts(input), input).toBe(false)
  })

  test('counts long repetitions to the letter, and makes the same mask for most of them', async () => {
    const builder = new GrammarBuilder()
    const letter = builder.charClass([[0x61, 0x63]])
    const program = builder.finish(builder.repeat(letter, 400, 700))
    const walk = new GrammarWalk(program, LETTERS)
    const walker = walk.open()
    const { pieces } = LETTERS
    for (let length = 0; length < 700; length++) {
      const want = pieces.flatMap((piece, id) => (length + piece.length <= 700 ? [id] : []))
      if (length >= 400) want.push(pieces.length)
      expect(allowed(walker, pieces.length + 1), `after ${length}`).toEqual(want)
      walker.accept(0)
    }
    expect(allowed(walker, pieces.length + 1)).toEqual([pieces.length])
    expect(() => walker.accept(0)).toThrow(GrammarError)
    expect(walk.bytes).toBeLessThan(2 ** 21)
  })

  test('goes as deep as an answer does', () => {
    const builder = new GrammarBuilder()
    const nested = builder.promise()
    const [open, close] = [builder.literal('a'), builder.literal('b')]
    builder.keep(nested, builder.sequence([open, builder.repeat(nested, 0, 5000), close]))
    const walk = new GrammarWalk(builder.finish(nested), LETTERS)
    const walker = walk.open()
    for (let depth = 0; depth < 20_000; depth++) walker.accept(0)
    expect(allowed(walker, LETTERS.pieces.length + 1).length).toBeGreaterThan(1)
    walk.forget()
    const b = LETTERS.pieces.indexOf('b')
    for (let depth = 0; depth < 19_999; depth++) walker.accept(b)
    walker.mask()
    walker.accept(b)
    expect(allowed(walker, LETTERS.pieces.length + 1)).toEqual([LETTERS.pieces.length])
  })

  test('stays small in steps and memory where a grammar can be read in very many ways', () => {
    const limits: WalkLimits = { ...DEFAULT_WALK_LIMITS, steps: 60_000 }
    const levels = (rest: (name: string) => string) =>
      ebnfProgram(
        ['root ::= l0', ...Array.from({ length: 40 }, (_, i) => `l${i} ::= ${rest(`l${i + 1}`)}`), 'l40 ::= "c"'].join(
          '\n',
        ),
      )
    const texts: [Program, string][] = [
      [levels(next => `"a" ${next} "b" | "a" ${next} "b"?`), `${'a'.repeat(40)}c${'b'.repeat(40)}`],
      [levels(next => `${next} "a"? | ${next} "b"?`), 'caaaabbbb'],
      [ebnfProgram('root ::= s\ns ::= "a" | s s | s s s'), 'a'.repeat(60)],
      [ebnfProgram('root ::= (("a"{1,90}){1,90}){1,90}'), 'a'.repeat(60)],
    ]
    for (const [program, text] of texts) {
      const walker = new GrammarWalk(program, LETTERS, limits).open()
      for (const char of text) {
        walker.mask()
        walker.accept(LETTERS.pieces.indexOf(char))
      }
      expect(allowed(walker, LETTERS.pieces.length + 1)).toContain(LETTERS.pieces.length)
    }
  })

  test('ends an answer, by name, whose grammar takes too many steps', () => {
    const program = ebnfProgram(
      `root ::= (${Array.from({ length: 300 }, (_, i) => `"${'a'.repeat(i + 1)}"`).join(' | ')})*`,
    )
    const walk = new GrammarWalk(program, LETTERS, { ...DEFAULT_WALK_LIMITS, steps: 2_000 })
    const walker = walk.open()
    expect(() => {
      for (let i = 0; i < 50; i++) {
        walker.mask()
        walker.accept(0)
      }
    }).toThrow(AmbiguousGrammarError)
  })
})

/** All texts of a grammar of a few, found by trying every byte. */
function texts(program: Program, bytes: Awaited<ReturnType<typeof vocabularyOf>>): Set<string> {
  const found = new Set<string>()
  const grow = (prefix: number[]) => {
    const walker = new GrammarWalk(program, bytes).open()
    for (const token of prefix) walker.accept(token)
    for (const id of allowed(walker, bytes.pieces.length + 1)) {
      if (id === bytes.pieces.length) found.add(new TextDecoder().decode(Uint8Array.from(prefix)))
      else grow([...prefix, id])
    }
  }
  grow([])
  return found
}

describe('the parts of a grammar', async () => {
  const alphabet = Array.from({ length: 256 }, (_, byte) => byte)
  const chars = new Map<number, string>()
  for (let code = 0; code < 600; code++) {
    const bytes = pieceBytes(String.fromCodePoint(code))
    if (bytes?.length === 1) chars.set(bytes[0], String.fromCodePoint(code))
  }
  const bytes = await vocabularyOf(alphabet.map(byte => chars.get(byte)!))
  const build = (make: (builder: GrammarBuilder) => Node) => {
    const builder = new GrammarBuilder()
    return builder.finish(make(builder))
  }

  test('one of many texts is each of them and nothing else', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ maxLength: 5, unit: fc.constantFrom('a', 'b', 'é', '😀', '😁') }), {
          minLength: 1,
          maxLength: 12,
        }),
        list => {
          const program = build(builder => new JsonText(builder).oneOf(list))
          expect(texts(program, bytes)).toEqual(new Set(list))
        },
      ),
      { numRuns: 60, seed: 5 },
    )
  })

  test('a class is every character of its ranges, as UTF-8, and no other', () => {
    const edges = [
      0, 0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdfff, 0xe000, 0xffff, 0x10000, 0x10fffe, 0x10ffff,
    ]
    const code = fc.oneof(fc.constantFrom(...edges), fc.integer({ min: 0, max: 0x10ffff }))
    const range = fc.tuple(code, code).map(([a, b]): CharRange => [Math.min(a, b), Math.max(a, b)])
    fc.assert(
      fc.property(
        fc.array(range, { minLength: 1, maxLength: 4 }),
        fc.array(code, { maxLength: 20 }),
        (ranges, codes) => {
          const near = ranges.flat().flatMap(edge => [edge - 1, edge, edge + 1])
          const tried = [...codes, ...near].filter(it => it >= 0 && it <= 0x10ffff && !(it >= 0xd800 && it <= 0xdfff))
          const isIn = (it: number) => ranges.some(([first, last]) => it >= first && it <= last)
          let program: Program | null = null
          try {
            program = build(builder => builder.charClass(ranges))
          } catch (error) {
            expect(error).toBeInstanceOf(GrammarError) // surrogates alone
          }
          for (const it of tried) {
            const matches = program !== null && reads(program, new TextEncoder().encode(String.fromCodePoint(it)))
            expect(matches, `${it.toString(16)} of ${ranges.map(r => r.map(e => e.toString(16)).join('-'))}`).toBe(
              isIn(it),
            )
          }
        },
      ),
      { numRuns: 150, seed: 6 },
    )
  })

  function reads(program: Program, input: Uint8Array): boolean {
    const walker = new GrammarWalk(program, bytes).open()
    try {
      for (const byte of input) walker.accept(byte)
    } catch {
      return false
    }
    return allowed(walker, 257).includes(256)
  }

  test('a bounded number is every whole one between, and every one of two decimals', () => {
    const bound = fc.integer({ min: -1300, max: 1300 })
    fc.assert(
      fc.property(
        bound,
        bound,
        fc.boolean(),
        fc.array(fc.integer({ min: -1500, max: 1500 }), { maxLength: 30 }),
        (a, b, open, tried) => {
          const [low, high] = [Math.min(a, b), Math.max(a, b)]
          const bounds = open ? { exclusiveMinimum: low, exclusiveMaximum: high } : { minimum: low, maximum: high }
          const isIn = (value: number) => (open ? value > low && value < high : value >= low && value <= high)
          let programs: Program[]
          try {
            programs = (['integer', 'number'] as const).map(type =>
              build(builder => boundedNumber(builder, type, bounds)),
            )
          } catch {
            expect(high - low).toBeLessThan(2)
            return
          }
          const encode = (text: string) => new TextEncoder().encode(text)
          for (const value of [...tried, low - 1, low, low + 1, high - 1, high, high + 1]) {
            for (const program of programs) expect(reads(program, encode(String(value))), `${value}`).toBe(isIn(value))
            const near = value + 0.25
            expect(reads(programs[1], encode(near.toFixed(2)))).toBe(isIn(near))
            expect(reads(programs[0], encode(near.toFixed(2)))).toBe(false)
          }
          for (const wrong of ['-0', '00', '', '-', '1e1', '+1']) expect(reads(programs[1], encode(wrong))).toBe(false)
        },
      ),
      { numRuns: 80, seed: 8 },
    )
  })

  test('grow no further than allowed', () => {
    const builder = new GrammarBuilder({ nodes: 100, bytes: 1000 })
    expect(() => {
      for (let i = 0; i < 200; i++) builder.literal(`text ${i}`)
    }).toThrow(GrammarSizeError)
    expect(() => new GrammarBuilder({ nodes: 100, bytes: 1000 }).literal('x'.repeat(1001))).toThrow(GrammarSizeError)
  })
})

describe('EBNF', () => {
  test.each([
    ['root ::= "a" # a comment\n  | "b"', null],
    ['root::=[^a-z\\]\\-\\u00e9]{2,} x.y-z?\nx.y-z ::= ("\\x41\\t\\"" | [-a] | [a-])+', null],
    ['root ::= (', 'line 1, column 11'],
    ['root ::= "a"\n\nb ::= [z-a]', 'line 3, column 8'],
    ['root ::= nowhere', 'no rule nowhere'],
    ['root ::= "a" | ', 'line 1'],
    ['root ::= "a', 'closing "'],
    ['root ::= [a', 'closing ]'],
    ['root ::= "a"{3,2}', '2 is less than 3'],
    ['root ::= "a"{2000000}', 'more than'],
    ['root ::= "a"*+', 'one repetition after another'],
    ['root ::= "\\q"', 'not an escape'],
    ['root ::= "a" (="b")', 'look-ahead'],
    ['root ::= TagDispatch(("a", b))', 'not supported'],
    ['root ::= "a"\nroot ::= "b"', 'twice'],
    ['other ::= "a"', 'root'],
    ['', 'root'],
    ['root ::= "a" )', 'without its ('],
    ['root ::= root', 'no text that ends'],
    ['root ::= "a" root', 'no text that ends'],
    [`root ::= ${'('.repeat(5000)}"a"${')'.repeat(5000)}`, 'nested deeper'],
    ['root ::= a root | "x"\na ::= "y"?', 'begins with itself'],
  ])('is read, or refused where it is wrong: %#', (text, message) => {
    if (message === null) expect(ebnfProgram(text).kinds.length).toBeGreaterThan(0)
    else {
      expect(() => ebnfProgram(text)).toThrow(GrammarError)
      expect(() => ebnfProgram(text)).toThrow(message)
    }
  })
})
