// The tokenizer and the chat template that a GGUF file carries.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openFileSource } from '#moeflux/files/fileSource.js'
import { GgufFields } from '#moeflux/files/gguf/ggufFields.js'
import { openGgufFolder } from '#moeflux/files/gguf/ggufFolder.js'
import type { GgufValue } from '#moeflux/files/gguf/ggufHeader.js'
import { tokenizerOf } from '#moeflux/files/gguf/ggufTokenizer.js'
import { readTemplate } from '#moeflux/text/template/chatTemplate.js'
import { loadTokenizer, Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { repository } from '../support/models/packedFiles.js'

const data = (name: string) => join(repository, 'test/data/gguf', name)

test('texts get the ids that the file’s tokenizer gives them', async () => {
  const folder = await openGgufFolder(data('tiny-moe-Q4_K_M.gguf'), openFileSource)
  const tokenizer = (await loadTokenizer(folder, 1024))!
  const { texts } = JSON.parse(readFileSync(data('tokens.json'), 'utf8')) as {
    texts: { text: string; ids: number[] }[]
  }
  expect(texts.length).toBe(5)
  for (const { text, ids } of texts) expect(tokenizer.encode(text), text).toEqual(ids)
  for (const { text, ids } of texts) expect(tokenizer.decode(ids)).toBe(text.normalize('NFC'))
  expect((await readTemplate(folder)).source).toContain('<|im_start|>')
})

describe('made of metadata', () => {
  const characters = Array.from({ length: 256 }, (_, byte) => byteCharacter(byte))
  const tokens = [...characters, 'Ġa', '<|end|>', '<tool>', '[PAD1]']
  const types = tokens.map((_, i) => (i < characters.length + 1 ? 1 : [3, 4, 5][i - characters.length - 1]))
  const valid: Record<string, GgufValue> = {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'qwen35',
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.token_type': types,
    'tokenizer.ggml.merges': ['Ġ a'],
    'tokenizer.ggml.eos_token_id': tokens.indexOf('<|end|>'),
    'tokenizer.chat_template': 'Hi',
  }
  const of = (change: Record<string, GgufValue | undefined> = {}) => {
    const entries = Object.entries({ ...valid, ...change }).filter(entry => entry[1] !== undefined)
    return tokenizerOf(new GgufFields(new Map(entries as [string, GgufValue][]), 'test.gguf'))
  }
  const tokenizer = (pre: string) => {
    const texts = of({ 'tokenizer.ggml.pre': pre })!
    return new Tokenizer(JSON.parse(texts.tokenizer), JSON.parse(texts.config))
  }

  test('control tokens are special, user-defined ones are not, unused ones are none', () => {
    const { addedTokens, vocabSize } = tokenizer('qwen35')
    expect(addedTokens.map(({ text, special }) => [text, special])).toEqual([
      ['<|end|>', true],
      ['<tool>', false],
    ])
    expect(vocabSize).toBe(tokens.length - 1)
    expect(JSON.parse(of()!.config)).toEqual({ eos_token: '<|end|>' })
    expect(of()!.template).toBe('Hi')
  })

  test('marks are letters by one rule and not by the other', () => {
    // 'q' and the first byte of a mark are merged where both are in one word.
    const [first, second] = [...new TextEncoder().encode('\u0301')].map(byteCharacter)
    const merged = `q${first}`
    const encode = (pre: string) => {
      const texts = of({
        'tokenizer.ggml.pre': pre,
        'tokenizer.ggml.tokens': [...tokens, merged],
        'tokenizer.ggml.token_type': [...types, 1],
        'tokenizer.ggml.merges': [`q ${first}`],
      })!
      return new Tokenizer(JSON.parse(texts.tokenizer)).encode('q\u0301')
    }
    const ids = (...characters: string[]) => characters.map(character => [...tokens, merged].indexOf(character))
    expect(encode('qwen35')).toEqual(ids(merged, second))
    expect(encode('qwen2')).toEqual(ids('q', first, second))
  })

  test('without a tokenizer there is none', () => {
    expect(of({ 'tokenizer.ggml.model': undefined })).toBeNull()
  })

  test.each<readonly [string, string, Record<string, GgufValue | undefined>]>([
    ['another kind', 'UNSUPPORTED_MODEL', { 'tokenizer.ggml.model': 'llama' }],
    ['another rule', 'UNSUPPORTED_MODEL', { 'tokenizer.ggml.pre': 'llama-bpe' }],
    ['no rule', 'UNSUPPORTED_MODEL', { 'tokenizer.ggml.pre': undefined }],
    ['a token before each text', 'UNSUPPORTED_MODEL', { 'tokenizer.ggml.add_bos_token': true }],
    ['no tokens', 'BAD_METADATA', { 'tokenizer.ggml.tokens': undefined }],
    ['a token twice', 'BAD_METADATA', { 'tokenizer.ggml.tokens': tokens.with(1, tokens[0]) }],
    ['fewer types than tokens', 'BAD_METADATA', { 'tokenizer.ggml.token_type': types.slice(1) }],
    ['a merge of one token', 'BAD_METADATA', { 'tokenizer.ggml.merges': ['Ġa'] }],
    ['an end that is no token', 'BAD_METADATA', { 'tokenizer.ggml.eos_token_id': 4096 }],
  ])('%s: %s', (_, code, change) => {
    expect(() => of(change)).toThrow(expect.objectContaining({ code }))
  })
})

/** The character that a byte-level vocabulary writes for a byte. */
function byteCharacter(byte: number): string {
  const isPlain = (each: number) => (each >= 33 && each <= 126) || (each >= 161 && each !== 173)
  if (isPlain(byte)) return String.fromCharCode(byte)
  return String.fromCharCode(
    256 + Array.from({ length: byte }, (_, each) => each).filter(each => !isPlain(each)).length,
  )
}
