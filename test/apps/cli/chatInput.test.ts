// Keys, pasted text and commands of the chat at a terminal, and its markdown.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { completeChatCommand, parseChatCommand } from '#moeflux/apps/cli/chat/chatCommands.js'
import { MarkdownStyler } from '#moeflux/apps/cli/chat/markdownStyler.js'
import { joinedLines, NEWLINE_MARK, PasteFilter } from '#moeflux/apps/cli/chat/pasteFilter.js'

describe('keys of a chat', () => {
  const paste = (text: string) => `\u001b[200~${text}\u001b[201~`

  test('keeps a paste of several lines one line, without control characters', () => {
    const keys = new PasteFilter().push(`say ${paste('a\r\nb\tc\u0003\u001b[A\nd')}\r`)
    expect(keys).toBe(`say a${NEWLINE_MARK}b  c[A${NEWLINE_MARK}d\r`)
    expect(joinedLines('a⏎b')).toBe('a\nb')
  })

  test('makes a newline of Alt-Enter, and leaves Enter and other keys alone', () => {
    expect(new PasteFilter().push('a\u001b\rb\r')).toBe(`a${NEWLINE_MARK}b\r`)
    expect(new PasteFilter().push('\u001b[A\u0003')).toBe('\u001b[A\u0003')
  })

  test('gives the same however the terminal cuts what it sends', () => {
    const word = fc.constantFrom(
      'a',
      'ü',
      '\r',
      '\n',
      '\u001b[A',
      '\u001b',
      paste('x\ny'),
      paste(''),
      paste('\u001b[20'),
    )
    fc.assert(
      fc.property(fc.array(word, { maxLength: 12 }), fc.array(fc.nat(6), { maxLength: 60 }), (words, cuts) => {
        const text = words.join('')
        const whole = new PasteFilter()
        const pieces = new PasteFilter()
        let got = ''
        let at = 0
        for (const cut of [...cuts, text.length]) {
          got += pieces.push(text.slice(at, at + cut))
          at += cut
        }
        // Alt-Enter alone may be told apart from Escape and Enter by when its keys arrive.
        const normal = (keys: string) =>
          keys.replaceAll('\u001b\r', NEWLINE_MARK).replaceAll('\u001b\n', NEWLINE_MARK).replaceAll('\u001b', '')
        expect(normal(got + pieces.flush())).toBe(normal(whole.push(text) + whole.flush()))
      }),
    )
  })
})

describe('commands of a chat', () => {
  test('tells commands from messages', () => {
    expect(parseChatCommand('hello')).toBe(null)
    expect(parseChatCommand('1/2')).toBe(null)
    expect(parseChatCommand('/clear')).toEqual({ name: 'clear' })
    expect(parseChatCommand(' /SAVE  my chat.json ')).toEqual({ name: 'save', file: 'my chat.json' })
    expect(parseChatCommand('/system You are\na pirate')).toEqual({ name: 'system', text: 'You are\na pirate' })
    expect(parseChatCommand('/think')).toEqual({ name: 'think', on: null })
    expect(parseChatCommand('/think off')).toEqual({ name: 'think', on: false })
    expect(parseChatCommand('/quit')).toEqual({ name: 'exit' })
  })

  test('says what is wrong with a command', () => {
    expect(parseChatCommand('/save')).toContain('needs a file')
    expect(parseChatCommand('/think maybe')).toContain("'maybe'")
    expect(parseChatCommand('/frobnicate')).toContain('/help')
  })

  test('completes names', () => {
    expect(completeChatCommand('/s')).toEqual(['/system', '/set', '/save', '/stats'])
    expect(completeChatCommand('/save x')).toEqual([])
    expect(completeChatCommand('s')).toEqual([])
  })
})

describe('markdown in a terminal', () => {
  const style = (text: string) => {
    const styler = new MarkdownStyler()
    return styler.push(text) + styler.end()
  }
  const visible = (text: string) =>
    text
      .replaceAll('\u001b[1m', '<b>')
      .replaceAll('\u001b[22m', '</b>')
      .replaceAll('\u001b[36m', '<c>')
      .replaceAll('\u001b[39m', '</c>')

  test.each([
    ['plain text', 'plain text'],
    ['# Title\ntext', '<b>Title</b>\ntext'],
    ['a **bold** word', 'a <b>bold</b> word'],
    ['use `npm ci` now', 'use <c>npm ci</c> now'],
    ['- one\n* two\n  - three', '• one\n• two\n  • three'],
    ['```js\nlet a = 1 ** 2\n```\nend', '<c>let a = 1 ** 2\n</c>end'],
    ['2 * 3 ** 4 - 1', '2 * 3 ** 4 - 1'],
    ['**not closed', '<b>not closed</b>'],
    ['---\nrule #1', '---\nrule #1'],
  ])('shows %j', (text, shown) => {
    expect(visible(style(text))).toBe(shown)
  })

  test('gives the same however an answer is cut, and loses no letter', () => {
    const piece = fc.constantFrom('a', ' ', '\n', '*', '**', '`', '```', '#', '-', 'b\n')
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), pieces => {
        const styler = new MarkdownStyler()
        const cut = pieces.map(text => styler.push(text)).join('') + styler.end()
        expect(cut).toBe(style(pieces.join('')))
        if (!pieces.includes('`') && !pieces.includes('```')) {
          expect(cut.replaceAll(/[^ab]/g, '')).toBe(pieces.join('').replaceAll(/[^ab]/g, ''))
        }
      }),
    )
  })
})
