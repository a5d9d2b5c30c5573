// A model's tokenizer (tokenizer.json of a byte-level BPE): text to token ids, which encoder.ts does, and ids back to text.
// Knows nothing of chat templates or models.
import { messageOf, TokenizerError } from '../../base/errors.js'
import type { Folder } from '../../files/source.js'
import { checkNesting } from '../../files/strictJson.js'
import { type AddedToken, AddedTokens, type FoundToken } from './addedTokens.js'
import { bytesOfCharacters } from './byteCharacters.js'
import { buildBytePairTables } from './bytePairs.js'
import { Detokenizer, type DetokenizerOptions } from './detokenizer.js'
import { byteShares, type EncodeOptions, Encoder, type EncoderData, type Encoding } from './encoder.js'
import { buildWholeWords } from './wholeWords.js'

export type { AddedToken, EncodeOptions }

export class Tokenizer {
  /** One more than the highest id. */
  readonly vocabSize: number
  readonly addedTokens: readonly AddedToken[]
  /** What an encoder like this one's is made of, for another thread. */
  readonly encoderData: EncoderData
  private readonly encoder: Encoder
  private readonly texts: (string | undefined)[] // [vocabSize], in byte characters except for added tokens
  private readonly added: AddedTokens
  private readonly addedById: ReadonlyMap<number, AddedToken>
  private readonly bytes: (Uint8Array | undefined)[] = [] // [vocabSize], filled on use
  private readonly utf8 = new TextEncoder()

  /** `json` is the parsed tokenizer.json, `config` the parsed tokenizer_config.json. */
  constructor(json: unknown, config: unknown = {}) {
    const file = checkTokenizerFile(json)
    record(config, 'the file', 'tokenizer_config.json')
    const vocabulary = new Map<string, number>()
    for (const [text, id] of Object.entries(file.model.vocab)) vocabulary.set(text, checkId(id, text))
    this.addedTokens = file.added_tokens.map(checkAddedToken)
    this.added = new AddedTokens(this.addedTokens)
    this.addedById = new Map(this.addedTokens.map(token => [token.id, token]))
    this.vocabSize = 1 + Math.max(maximum(vocabulary.values()), maximum(this.addedById.keys()))
    if (this.vocabSize > 4 * (vocabulary.size + this.addedTokens.length) + 1024) {
      throw new TokenizerError(`tokenizer.json: ids up to ${this.vocabSize - 1} for ${vocabulary.size} tokens`)
    }
    this.texts = new Array(this.vocabSize)
    for (const [text, id] of vocabulary) this.texts[id] = text
    for (const token of this.addedTokens) this.texts[token.id] = token.text
    const isWholeWordsFirst = file.model.ignore_merges === true
    this.encoderData = {
      normalizer: file.normalizer,
      preTokenizer: file.pre_tokenizer,
      addedTokens: this.addedTokens,
      pairs: buildBytePairTables(vocabulary, file.model.merges),
      wholeWords: isWholeWordsFirst ? buildWholeWords(vocabulary, new Set(this.addedById.keys())) : null,
      byteShares: byteShares(vocabularyBytes(vocabulary.keys())),
    }
    this.encoder = new Encoder(this.encoderData)
  }

  /** All at once, on this thread: long texts are better given to a session, which encodes them beside. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    return Array.from(this.encodeSections(text, options).ids)
  }

  /** The ids, and where parts begin that can be encoded on their own. */
  encodeSections(text: string, options: EncodeOptions = {}, limit?: number): Encoding {
    return this.encoder.encode(text, options, limit)
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
    const bytes = (this.addedById.has(id) ? null : bytesOfCharacters(text)) ?? this.utf8.encode(text)
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
    return this.added.get(text)
  }

  /** The added tokens in a text, from left to right, as an encoder that is told of `mark` takes them. */
  findAdded(text: string, mark = ''): Iterable<FoundToken> {
    return this.added.find(text, mark)
  }
}

function* vocabularyBytes(texts: Iterable<string>): Generator<Uint8Array> {
  for (const text of texts) yield bytesOfCharacters(text) ?? new Uint8Array(0)
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
  checkNesting(text, name)
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new TokenizerError(`${name}: not valid JSON: ${messageOf(cause)}`, { cause })
  }
}

// --- checks of tokenizer.json: anything that this code would encode differently than its author meant is refused ------

interface TokenizerFile {
  readonly model: {
    readonly vocab: Readonly<Record<string, unknown>>
    readonly merges: readonly unknown[]
    readonly ignore_merges?: unknown
  }
  readonly added_tokens: readonly unknown[]
  readonly normalizer?: unknown
  readonly pre_tokenizer?: unknown
}

function checkTokenizerFile(json: unknown): TokenizerFile {
  const file = record(json, 'the file')
  const model = record(file.model, 'model')
  const want = (name: string, got: unknown, good: boolean, wanted: string) => {
    if (!good) throw new TokenizerError(`tokenizer.json: ${name} is ${shown(got)}, want ${wanted}`)
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
    throw new TokenizerError(`tokenizer.json: added_tokens[${index}].content is ${shown(text)}, want text`)
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
    throw new TokenizerError(`tokenizer.json: the id of '${text}' is ${shown(id)}, want a whole number >= 0`)
  }
  return id as number
}

function maximum(values: Iterable<number>): number {
  let result = -1
  for (const value of values) if (value > result) result = value
  return result
}

function shown(value: unknown): string {
  return JSON.stringify(value) ?? 'missing'
}
