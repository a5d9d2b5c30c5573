// Text to token ids and back, for byte-level BPE tokenizers (tokenizer.json). `@huggingface/tokenizers` reads the
// normalizer and the pre-tokenizer; merging is ours (bytePairs.ts). Text that merely spells a special token can be kept
// text: see `mark`. Knows nothing of chat templates or models.
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'
import { TokenizerError } from '../errors.js'
import type { Folder } from '../storage/byteSource.js'
import { BytePairs, byteCharacters } from './bytePairs.js'
import { Detokenizer, type DetokenizerOptions } from './detokenizer.js'

const CACHED_SECTION_LENGTH = 64
const CACHED_CHARACTERS = 4 * 2 ** 20

export interface AddedToken {
  readonly id: number
  readonly text: string
  /** Control tokens (`<|im_end|>`) are special; `<think>` and `<tool_call>` are not. */
  readonly special: boolean
}

export interface EncodeOptions {
  /** False: text that spells an added token is encoded as plain text. Default true. */
  readonly allowSpecial?: boolean
  /** A character that is not part of the text: it is taken out, and an added token's text with it inside stays text. */
  readonly mark?: string
}

/** A part of an encoded text that begins right at an added token or right after one: its ids do not depend on others. */
export interface Section {
  readonly start: number // in the text, marks counted
  readonly token: number // index of its first id
}

export class Tokenizer {
  /** One more than the highest id. */
  readonly vocabSize: number
  readonly addedTokens: readonly AddedToken[]
  private readonly texts: (string | undefined)[] // [vocabSize], in byte characters except for added tokens
  private readonly addedByText = new Map<string, AddedToken>()
  private readonly addedById = new Map<number, AddedToken>()
  private readonly addedPattern: RegExp | null
  private readonly pairs: BytePairs
  private readonly normalize: (text: string) => string
  private readonly split: (text: string) => string[]
  private readonly bytesOfCharacter = new Map(byteCharacters().map((character, byte) => [character, byte]))
  private readonly bytes: (Uint8Array | undefined)[] = [] // [vocabSize], filled on use
  private readonly utf8 = new TextEncoder()
  private readonly known = new Map<string, readonly number[]>() // ids of sections: conversations repeat all but the last
  private knownCharacters = 0

  /** `json` is the parsed tokenizer.json, `config` the parsed tokenizer_config.json. */
  constructor(json: unknown, config: unknown = {}) {
    const file = checkTokenizerFile(json)
    const settings = record(config, 'the file', 'tokenizer_config.json')
    const vocabulary = new Map<string, number>()
    for (const [text, id] of Object.entries(file.model.vocab)) vocabulary.set(text, checkId(id, text))
    this.addedTokens = file.added_tokens.map(checkAddedToken)
    for (const token of this.addedTokens) {
      this.addedByText.set(token.text, token)
      this.addedById.set(token.id, token)
    }
    this.vocabSize = 1 + Math.max(maximum(vocabulary.values()), maximum(this.addedById.keys()))
    if (this.vocabSize > 4 * (vocabulary.size + this.addedTokens.length) + 1024) {
      throw new TokenizerError(`tokenizer.json: ids up to ${this.vocabSize - 1} for ${vocabulary.size} tokens`)
    }
    this.texts = new Array(this.vocabSize)
    for (const [text, id] of vocabulary) this.texts[id] = text
    for (const token of this.addedTokens) this.texts[token.id] = token.text
    const longestFirst = this.addedTokens.map(token => token.text).sort((a, b) => b.length - a.length)
    this.addedPattern = longestFirst.length > 0 ? new RegExp(longestFirst.map(escapeRegExp).join('|'), 'g') : null
    this.pairs = new BytePairs(vocabulary, file.model.merges, file.model.ignore_merges === true)

    // The library is given no vocabulary: it would spend seconds and memory on merge tables that are not used.
    let library: LibraryTokenizer
    try {
      library = new LibraryTokenizer(
        {
          ...file,
          model: { type: 'BPE', vocab: {}, merges: [] },
          added_tokens: [],
          decoder: null,
          post_processor: null,
          normalizer: file.normalizer ?? null,
        },
        settings,
      )
    } catch (cause) {
      throw new TokenizerError(`tokenizer.json: ${(cause as Error).message}`, { cause })
    }
    const { normalizer, pre_tokenizer: preTokenizer } = library
    this.normalize = normalizer === null ? text => text : text => (normalizer as unknown as Call<string>)(text)
    this.split = text => (preTokenizer as unknown as Call<string[]>)(text, { section_index: 0 })
  }

  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.encodeSections(text, options).ids
  }

  /** The ids, and where parts begin that can be encoded on their own. */
  encodeSections(text: string, options: EncodeOptions = {}): { ids: number[]; sections: Section[] } {
    const ids: number[] = []
    const sections: Section[] = []
    const unmarked = (part: string) => (options.mark ? part.replaceAll(options.mark, '') : part)
    const plain = (start: number, end: number) => {
      if (end <= start) return
      sections.push({ start, token: ids.length })
      this.encodePlain(unmarked(text.slice(start, end)), ids)
    }
    let start = 0
    if (this.addedPattern !== null && options.allowSpecial !== false) {
      for (const match of text.matchAll(this.addedPattern)) {
        plain(start, match.index)
        sections.push({ start: match.index, token: ids.length })
        ids.push(this.addedByText.get(match[0])!.id)
        start = match.index + match[0].length
      }
    }
    plain(start, text.length)
    return { ids, sections }
  }

  /** Puts `mark` into whatever spells an added token (or only a special one), so that `encode` with it leaves it text. */
  protect(text: string, mark: string, which: 'added' | 'special'): string {
    if (this.addedPattern === null) return text
    return text.replace(this.addedPattern, found => {
      if (which === 'special' && !this.addedByText.get(found)!.special) return found
      const first = String.fromCodePoint(found.codePointAt(0)!)
      return first + mark + found.slice(first.length)
    })
  }

  decode(ids: readonly number[], options?: DetokenizerOptions): string {
    const detokenizer = new Detokenizer(this, options)
    let text = ''
    for (const id of ids) text += detokenizer.push(id)
    return text + detokenizer.end()
  }

  createDetokenizer(options?: DetokenizerOptions): Detokenizer {
    return new Detokenizer(this, options)
  }

  /** The bytes that a token stands for; none for an id without a token. The caller must not change them. */
  tokenBytes(id: number): Uint8Array {
    const known = this.bytes[id]
    if (known !== undefined) return known
    const text = this.texts[id] ?? ''
    const values = this.addedById.has(id) ? null : Array.from(text, character => this.bytesOfCharacter.get(character))
    const bytes =
      values === null || values.includes(undefined) ? this.utf8.encode(text) : Uint8Array.from(values as number[])
    if (id >= 0 && id < this.vocabSize) this.bytes[id] = bytes
    return bytes
  }

  /** A token as tokenizer.json writes it (in byte characters), or null. */
  tokenText(id: number): string | null {
    return this.texts[id] ?? null
  }

  isSpecial(id: number): boolean {
    return this.addedById.get(id)?.special === true
  }

  addedToken(text: string): AddedToken | null {
    return this.addedByText.get(text) ?? null
  }

  private encodePlain(text: string, ids: number[]): void {
    let own = this.known.get(text)
    if (own === undefined) {
      own = this.encodeWords(this.normalize(text))
      if (text.length >= CACHED_SECTION_LENGTH && text.length <= CACHED_CHARACTERS) this.remember(text, own)
    }
    for (const id of own) ids.push(id)
  }

  private encodeWords(text: string): number[] {
    const ids: number[] = []
    if (text.length === 0) return ids
    for (const word of this.split(text)) {
      for (const id of this.pairs.encode(word)) ids.push(id)
    }
    return ids
  }

  private remember(text: string, ids: readonly number[]): void {
    this.knownCharacters += text.length
    if (this.knownCharacters > CACHED_CHARACTERS) {
      this.known.clear()
      this.knownCharacters = text.length
    }
    this.known.set(text, ids)
  }
}

/** The tokenizer of a model folder, or null where the folder has none. `vocabSize` is the model's. */
export async function loadTokenizer(folder: Folder, vocabSize?: number): Promise<Tokenizer | null> {
  const json = await folder.readText('tokenizer.json')
  if (json === null) return null
  const config = await folder.readText('tokenizer_config.json')
  const tokenizer = new Tokenizer(
    parseJson(json, 'tokenizer.json'),
    config === null ? {} : parseJson(config, 'tokenizer_config.json'),
  )
  if (vocabSize !== undefined) checkVocabulary(tokenizer, vocabSize)
  return tokenizer
}

export function checkVocabulary(tokenizer: Tokenizer, vocabSize: number): void {
  if (tokenizer.vocabSize > vocabSize) {
    throw new TokenizerError(
      `tokenizer.json: the vocabulary has ${tokenizer.vocabSize} entries, more than the model's ${vocabSize}`,
    )
  }
}

export function parseJson(text: string, name: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new TokenizerError(`${name}: not valid JSON: ${(cause as Error).message}`, { cause })
  }
}

// --- checks of tokenizer.json: anything that this code would encode differently than its author meant is refused ------

type Call<T> = (text: string, options?: unknown) => T

interface TokenizerFile {
  readonly model: {
    readonly vocab: Readonly<Record<string, unknown>>
    readonly merges: readonly unknown[]
    readonly ignore_merges?: unknown
  }
  readonly added_tokens: readonly unknown[]
  readonly normalizer?: unknown
}

function checkTokenizerFile(json: unknown): TokenizerFile {
  const file = record(json, 'the file')
  const model = record(file.model, 'model')
  const want = (name: string, got: unknown, good: boolean, wanted: string) => {
    if (!good)
      throw new TokenizerError(`tokenizer.json: ${name} is ${JSON.stringify(got) ?? 'missing'}, want ${wanted}`)
  }
  want('model.type', model.type, model.type === 'BPE' || model.type === undefined, "'BPE'")
  want('model.merges', typeof model.merges, Array.isArray(model.merges), 'a list')
  record(model.vocab, 'model.vocab')
  for (const name of ['continuing_subword_prefix', 'end_of_word_suffix']) {
    want(`model.${name}`, model[name], (model[name] ?? '') === '', 'none')
  }
  const decoder = record(file.decoder, 'decoder')
  want('decoder.type', decoder.type, decoder.type === 'ByteLevel', "'ByteLevel'")
  record(file.pre_tokenizer, 'pre_tokenizer')
  if (file.post_processor != null) {
    const { type } = record(file.post_processor, 'post_processor')
    want('post_processor.type', type, type === 'ByteLevel', "'ByteLevel' or none")
  }
  const added = file.added_tokens ?? []
  want('added_tokens', typeof added, Array.isArray(added), 'a list')
  return { ...file, added_tokens: added } as unknown as TokenizerFile
}

function checkAddedToken(value: unknown, index: number): AddedToken {
  const token = record(value, `added_tokens[${index}]`)
  const text = token.content
  if (typeof text !== 'string' || text.length === 0) {
    throw new TokenizerError(`tokenizer.json: added_tokens[${index}].content is ${JSON.stringify(text)}, want text`)
  }
  for (const name of ['single_word', 'lstrip', 'rstrip']) {
    if (token[name]) throw new TokenizerError(`tokenizer.json: added token '${text}' has ${name}: true, want false`)
  }
  return { id: checkId(token.id, text), text, special: token.special === true }
}

function record(value: unknown, name: string, file = 'tokenizer.json'): Record<string, unknown> {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new TokenizerError(`${file}: ${name} is ${value === undefined ? 'missing' : 'not an object'}`)
  }
  return value as Record<string, unknown>
}

function checkId(id: unknown, text: string): number {
  if (!Number.isInteger(id) || (id as number) < 0 || (id as number) > 0x7fffffff) {
    throw new TokenizerError(`tokenizer.json: the id of '${text}' is ${JSON.stringify(id)}, want a whole number >= 0`)
  }
  return id as number
}

function maximum(values: Iterable<number>): number {
  let result = -1
  for (const value of values) if (value > result) result = value
  return result
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
}
