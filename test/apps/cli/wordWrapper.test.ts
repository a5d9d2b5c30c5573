// Words that come in pieces, wrapped at a terminal's width.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { wrapWords } from '#moeflux/apps/cli/format.js'
import { WordWrapper } from '#moeflux/apps/cli/wordWrapper.js'

function wrapped(pieces: readonly string[], columns: number): string {
  const wrapper = new WordWrapper(() => columns)
  return pieces.map(piece => wrapper.push(piece)).join('') + wrapper.end()
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const plain = (text: string) => text.replace(/\u001b\[[\d;]*m/g, '')

describe('an answer at a terminal', () => {
  test('has its lines broken between words', () => {
    expect(wrapped(['The little dog ran into the garden.'], 16)).toBe('The little dog\nran into the\ngarden.')
  })

  test('keeps lines, indents and words that are longer than a line', () => {
    expect(wrapped(['a\n\n  b  c\n'], 80)).toBe('a\n\n  b  c\n')
    expect(wrapped(['x https://example.org/a/long/way y'], 12)).toBe('x\nhttps://example.org/a/long/way y')
  })

  test('takes no room for colours, and two columns for wide characters', () => {
    const bold = '\u001b[1mlittle\u001b[22m'
    expect(wrapped([`The ${bold} dog`], 15)).toBe(`The ${bold} dog`)
    expect(wrapped(['這是一隻小狗'], 9)).toBe('這是一隻\n小狗')
  })

  const samples: [sign: string, columns: number][] = [
    ...['✅', '⭐', '❌', '⚡', '❤️', '1️⃣', '🇩🇪', '👩‍💻', '👍🏽', '🎉', '小', 'ク', '한', 'Ａ', '。'].map(
      sign => [sign, 2] as [string, number],
    ),
    ...['é', 'e\u0301', 'ß', '→', '…', '•', '─', '❤'].map(sign => [sign, 1] as [string, number]),
  ]
  test.each(samples)('knows the columns of %s', (sign, columns) => {
    const line = `a ${sign.repeat(4)} b` // wide letters may begin a line, pictures may not
    const width = 2 + 4 * columns
    expect(wrapWords(line, width + 2)).toEqual([line])
    expect(wrapWords(line, width + 1).length).toBeGreaterThan(1)
    expect(wrapped([line], width + 3)).toBe(line)
    expect(wrapped([line], width + 2)).toBe(`${line.slice(0, -2)}\nb`)
  })

  test('takes a window of one column, and one that does not know its size', () => {
    expect(wrapped(['a bc 小'], 1).split(/\s/)).toEqual(['a', 'bc', '小'])
    expect(wrapped(['a bc 小'], Number.POSITIVE_INFINITY)).toBe('a bc 小')
    expect(wrapWords('a bc', 0)).toEqual(['a', 'bc'])
  })

  test('keeps indents, lines and command lines in quotes whole', () => {
    expect(wrapWords("no such model: 'moeflux pull a/b' downloads it", 24)).toEqual([
      'no such model:',
      "'moeflux pull a/b'",
      'downloads it',
    ])
    expect(wrapWords('  at one two three\nfour', 12)).toEqual(['  at one two', '  three', 'four'])
  })

  test('leaves blocks of code as they are', () => {
    const wrapper = new WordWrapper(() => 8)
    expect(wrapper.push('const a = 1 + 2\n', true) + wrapper.push('one two three')).toBe('const a = 1 + 2\none two')
  })

  test('says the same words however they come, in lines that fit', () => {
    const word = fc.stringMatching(/^[a-zé,.]{1,9}$/)
    const coloured = word.map(text => `\u001b[36m${text}\u001b[39m`)
    const text = fc.array(fc.oneof(word, coloured, fc.constant('\n')), { maxLength: 40 }).map(words => words.join(' '))
    fc.assert(
      fc.property(
        text,
        fc.array(fc.nat(200), { maxLength: 8 }),
        fc.integer({ min: 12, max: 40 }),
        (all, cuts, columns) => {
          const at = [...new Set([0, ...cuts.map(cut => Math.min(cut, all.length)), all.length])].sort((a, b) => a - b)
          // A terminal's styles come whole from the styler.
          const pieces = at.slice(1).map((end, i) => all.slice(at[i], end))
          // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
          const isCut = pieces.some(piece => /\u001b(\[[\d;]*)?$/.test(piece))
          const out = wrapped(isCut ? [all] : pieces, columns)
          expect(out).toBe(wrapped([all], columns))
          expect(plain(out).split(/\s+/).join(' ').trim()).toBe(plain(all).split(/\s+/).join(' ').trim())
          for (const line of plain(out).split('\n')) expect(line.trimEnd().length).toBeLessThan(columns)
        },
      ),
    )
  })
})
