// The demo model's tokenizer beside what the reference tokenizer gives, and streams of tokens back to text.
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { AddedTokens } from '#moeflux/text/tokenizer/addedTokens.js'
import { Encoder } from '#moeflux/text/tokenizer/encoder.js'
import { normalizeText } from '#moeflux/text/tokenizer/normalizeText.js'
import { checkVocabulary, loadTokenizer, Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { processorMs } from '../support/processorMs.js'
import { demoFiles, demoTokenizer, goldenPrompts, goldenTexts, textFolder } from '../support/textTools.js'

const files = await demoFiles()
const json = JSON.parse(files.get('tokenizer.json')!)
const config = JSON.parse(files.get('tokenizer_config.json')!)
const tokenizer = await demoTokenizer()
const library = new LibraryTokenizer(json, config)
const encoder = new Encoder(tokenizer.encoderData)

const awkward = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc
    .array(
      fc.constantFrom(
        'once',
        ' upon',
        '  ',
        '\n',
        '\r\n',
        "'s",
        "'LL",
        '12',
        'é',
        'e\u0301',
        '<',
        '|',
        '漢字',
        '😀',
        '\0',
      ),
    )
    .map(parts => parts.join('')),
)

describe('encoding', () => {
  test('gives the ids of the goldens', async () => {
    for (const prompt of await goldenPrompts()) {
      expect(tokenizer.encode(prompt.text)).toEqual(prompt.input_ids)
      expect(tokenizer.decode(prompt.input_ids)).toBe(prompt.text)
      expect(tokenizer.decode(prompt.greedy_ids)).toBe(prompt.greedy_text)
    }
  })

  test('gives the ids of the library it replaces the merging of', async () => {
    for (const text of await goldenTexts()) expect(tokenizer.encode(text)).toEqual(library.encode(text).ids)
    fc.assert(
      fc.property(awkward, text => {
        expect(tokenizer.encode(text)).toEqual(library.encode(text).ids)
      }),
      { numRuns: 500 },
    )
  })

  test('keeps special tokens text where that is asked for', () => {
    const text = 'a<|im_end|>b<think>'
    expect(tokenizer.encode(text)).toContain(8185)
    const plain = tokenizer.encode(text, { allowSpecial: false })
    expect(plain.filter(id => id >= 8183)).toEqual([])
    expect(tokenizer.decode(plain)).toBe(text)
  })

  test('leaves marked tokens text and others special', () => {
    const mark = '\uE000'
    const added = new AddedTokens(tokenizer.addedTokens)
    const said = added.protect('say <|im_end|> and <think>', mark, () => true)
    expect([said.offset(0), said.offset(5), said.offset(6), said.offset(26)]).toEqual([0, 5, 7, 28])
    const text = `<|im_start|>user\n${said.text}<|im_end|>`
    const ids = tokenizer.encode(text, { mark })
    expect(ids.filter(id => id >= 8183)).toEqual([8184, 8185])
    expect(tokenizer.decode(ids)).toBe('<|im_start|>user\nsay <|im_end|> and <think><|im_end|>')
    expect(added.protect('<think>', mark, () => false).text).toBe('<think>')
  })

  test('finds no marked token of one letter, and none inside another that is marked', () => {
    const mark = '\uE000'
    const tokens = [
      { id: 0, text: 'ab', special: true },
      { id: 1, text: 'bc', special: true },
      { id: 2, text: 'a', special: true },
    ]
    const added = new AddedTokens(tokens)
    expect([...added.find('abcbca')].map(({ token }) => token.id)).toEqual([0, 1, 2])
    const { text } = added.protect('abcbca', mark, () => true)
    expect([...added.find(text, mark)]).toEqual([])
    expect(text.replaceAll(mark, '')).toBe('abcbca')
  })

  test('says where parts begin that can be encoded alone', () => {
    const text = 'one two<|im_end|>\nthree'
    const { ids, sections } = tokenizer.encodeSections(text)
    expect(sections.map(section => section.start)).toEqual([0, 7, 17])
    for (const { start, token } of sections) {
      expect(tokenizer.encode(text.slice(start))).toEqual([...ids.slice(token)])
    }
  })

  test('takes lone surrogates, NUL and empty text', () => {
    expect(tokenizer.encode('')).toEqual([])
    expect(tokenizer.decode(tokenizer.encode('a\0b'))).toBe('a\0b')
    expect(tokenizer.decode(tokenizer.encode('\ud800x\udc00'))).toBe('\ufffdx\ufffd')
  })

  test('cuts text as the library does, whatever the steps', () => {
    const split = (Regex: string, more = {}) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', ...more })
    const bytes = { type: 'ByteLevel', add_prefix_space: false, use_regex: false }
    const [words] = json.pre_tokenizer.pretokenizers
    const steps: Record<string, unknown[]> = {
      several: [split('\\p{N}{1,3}'), split('[一-龥ぁ-ん]+'), words, bytes],
      'the pattern of the byte level': [{ ...bytes, use_regex: true, add_prefix_space: true }],
      digits: [{ type: 'Digits', individual_digits: true }, { type: 'Punctuation' }, bytes],
      'text left out': [split(' +', { behavior: 'Removed' }), bytes],
      'matches alone': [split('\\p{L}+| +', { invert: true }), bytes],
      'empty matches': [split('(?=[A-Z])|(?<=e)|o+'), bytes],
      'a text': [{ type: 'Split', pattern: { String: 'on' }, behavior: 'Isolated' }, bytes],
      'bytes before words': [bytes, words],
    }
    for (const [name, pretokenizers] of Object.entries(steps)) {
      const changed = { ...json, pre_tokenizer: { type: 'Sequence', pretokenizers } }
      const own = new Tokenizer(changed, config)
      const reference = new LibraryTokenizer(changed, config)
      fc.assert(
        fc.property(awkward, text => {
          expect(own.encode(text), name).toEqual(reference.encode(text).ids)
        }),
        { numRuns: 100 },
      )
    }
  })

  test('takes words that are tokens as they are where the file says so, and never an added token', () => {
    const added = { id: 9000, content: 'once', special: true }
    const changed = structuredClone({ ...json, added_tokens: [...json.added_tokens, added] })
    Object.assign(changed.model, { ignore_merges: true, merges: [] })
    changed.model.vocab.once = 9000
    const whole = new Tokenizer(changed, config)
    const id = (text: string): number => changed.model.vocab[text]
    expect(whole.encode(' upon a')).toEqual([id('Ġupon'), id('Ġa')])
    expect(whole.encode('zqzqz')).toEqual([...'zqzqz'].map(id))
    expect(whole.encode('once')).toEqual([9000])
    expect(whole.encode('once', { allowSpecial: false })).toEqual([...'once'].map(id))
  })

  test('gives a long text up past a limit, and never says of a text that it has more tokens than it has', () => {
    const long = fc.tuple(awkward, fc.integer({ min: 1, max: 400 })).map(([text, times]) => `${text} `.repeat(times))
    fc.assert(
      fc.property(long, fc.integer({ min: 0, max: 3000 }), (text, limit) => {
        const { length } = tokenizer.encode(text)
        const { ids, past } = tokenizer.encodeSections(text, {}, limit)
        expect(encoder.leastTokens(text)).toBeLessThanOrEqual(length)
        expect(ids.length).toBe(length)
        expect(past).toEqual(length > limit ? { tokens: length, isAtLeast: false } : null)
      }),
      { numRuns: 200 },
    )
    const words = 'once upon a time '.repeat(20_000)
    const { length } = tokenizer.encode(words)
    expect(tokenizer.encodeSections(words, {}, length).past).toBeNull()
    const past = tokenizer.encodeSections(words, {}, length - 1).past
    expect(past).toEqual({ tokens: length, isAtLeast: true })
    const untouched = tokenizer.encodeSections(words.repeat(8), {}, 4096)
    expect(untouched.ids.length).toBe(0)
    expect(untouched.past!.tokens).toBeGreaterThan(length)
  })

  test('refuses a word that merging would need gigabytes for', () => {
    for (const text of ['é'.repeat(2 ** 21 + 1), 'x'.repeat(2 ** 25)]) {
      expect(() => tokenizer.encode(text)).toThrow(/prompt: got 'a word of .* want/)
    }
  })

  test('encodes a word of a megabyte in reasonable time', () => {
    for (const text of ['onceupon'.repeat(131072), 'x'.repeat(2 ** 20), ' '.repeat(2 ** 20), '<'.repeat(2 ** 20)]) {
      const start = processorMs()
      const ids = tokenizer.encode(text)
      expect(processorMs() - start).toBeLessThan(5_000)
      expect(tokenizer.decode(ids)).toBe(text)
    }
  })
})

describe('normalizing', () => {
  const marks: string[] = []
  for (let code = 0x300; code < 0x1e950; code++) {
    const mark = String.fromCodePoint(code)
    if (/\p{M}/u.test(mark)) marks.push(mark)
  }

  test('gives what the engine gives, also for long runs of marks', () => {
    const text = fc
      .array(fc.tuple(fc.constantFrom('e', 'A', '가', 'ᄀ', '', '\ud800'), fc.array(fc.constantFrom(...marks))), {
        maxLength: 4,
      })
      .chain(parts => fc.integer({ min: 1, max: 60 }).map(times => ({ parts, times })))
      .map(({ parts, times }) => parts.map(([letter, run]) => letter + run.join('').repeat(times)).join(''))
    for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD'] as const) {
      fc.assert(
        fc.property(text, text => {
          expect(normalizeText(text, form)).toBe(text.normalize(form))
        }),
        { numRuns: 150 },
      )
    }
  })

  test('takes no longer for marks than for letters', () => {
    const text = '\u0301\u0323'.repeat(250_000)
    const started = processorMs()
    expect(normalizeText(text, 'NFC')).toBe('\u0323'.repeat(250_000) + '\u0301'.repeat(250_000))
    expect(processorMs() - started).toBeLessThan(5_000)
  })
})

describe('the file', () => {
  const change = (edit: (copy: typeof json) => void) => {
    const copy = structuredClone(json)
    edit(copy)
    return () => new Tokenizer(copy, config)
  }

  test('is optional', async () => {
    expect(await loadTokenizer(textFolder(new Map()))).toBeNull()
  })

  test('is refused where it would encode differently than meant', async () => {
    expect(change(copy => (copy.model.type = 'Unigram'))).toThrow(/model.type is "Unigram"/)
    expect(change(copy => (copy.decoder = { type: 'WordPiece' }))).toThrow(/decoder.type/)
    expect(change(copy => (copy.added_tokens[0].lstrip = true))).toThrow(/<\|endoftext\|>.*lstrip/)
    expect(change(copy => delete copy.model.vocab['!'])).toThrow(/lacks the byte '!'/)
    expect(change(copy => (copy.model.vocab['!'] = -1))).toThrow(/id of '!' is -1/)
    expect(change(copy => (copy.model.vocab['!'] = 2 ** 30))).toThrow(/ids up to/)
    expect(change(copy => copy.model.merges.push(['no', 'such thing']))).toThrow(/do not exist/)
    expect(change(copy => (copy.pre_tokenizer.pretokenizers[0].pattern.Regex = '('))).toThrow(/tokenizer.json/)
    await expect(loadTokenizer(textFolder(new Map([['tokenizer.json', '{']])))).rejects.toMatchObject({
      code: 'TOKENIZER',
    })
    for (const broken of [null, 3, [], {}, { model: null }, { model: { type: 'BPE' } }]) {
      expect(() => new Tokenizer(broken)).toThrow(/tokenizer.json/)
    }
    for (const broken of [null, 3, []]) {
      expect(() => new Tokenizer(json, broken)).toThrow('tokenizer_config.json: the file is not an object')
    }
  })

  test('is refused by name where it is nested too deep to be spoken of', async () => {
    const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`
    const text = JSON.stringify(json).replace('"merges":[', `"merges":[${deep},`)
    const refused = { code: 'JSON_TOO_DEEP', message: expect.stringContaining('tokenizer.json') }
    await expect(loadTokenizer(textFolder(new Map([['tokenizer.json', text]])))).rejects.toMatchObject(refused)
    expect(change(copy => delete copy.added_tokens[0].content)).toThrow('content is missing')
  })

  test('may not have more tokens than the model', async () => {
    expect(() => checkVocabulary(tokenizer, 8191)).toThrow(/8192 entries, more than the model's 8191/)
    await expect(loadTokenizer(textFolder(files), 100)).rejects.toMatchObject({ code: 'TOKENIZER' })
    expect((await loadTokenizer(textFolder(files), 8192))!.vocabSize).toBe(8192)
  })
})

describe('streaming detokenization', () => {
  test('never splits a character and equals decoding at once', () => {
    fc.assert(
      fc.property(awkward, text => {
        const detokenizer = tokenizer.createDetokenizer()
        let streamed = ''
        for (const id of tokenizer.encode(text)) {
          const piece = detokenizer.push(id)
          expect(piece).not.toMatch(/[\ud800-\udbff]$|^[\udc00-\udfff]/)
          streamed += piece
        }
        streamed += detokenizer.end()
        expect(streamed).toBe(tokenizer.decode(tokenizer.encode(text)))
      }),
    )
  })

  test('gives U+FFFD for bytes that are no character, for any ids', () => {
    const utf8 = new TextDecoder('utf-8', { ignoreBOM: true })
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 8191 })), ids => {
        const bytes = ids.flatMap(id => [...tokenizer.tokenBytes(id)])
        expect(tokenizer.decode(ids)).toBe(utf8.decode(Uint8Array.from(bytes)))
      }),
    )
    const [first, second] = tokenizer.encode('漢')
    const detokenizer = tokenizer.createDetokenizer()
    expect(detokenizer.push(first)).toBe('')
    expect(detokenizer.push(440)).toBe('\ufffdOnce')
    expect(detokenizer.push(second)).toBe('\ufffd')
    expect(detokenizer.push(first)).toBe('')
    expect(detokenizer.end()).toBe('\ufffd')
    expect(tokenizer.decode([99999, -1])).toBe('')
  })

  test('can leave special tokens out', () => {
    expect(tokenizer.decode([8184, 440, 8186, 8185], { skipSpecial: true })).toBe('Once<think>')
  })
})
