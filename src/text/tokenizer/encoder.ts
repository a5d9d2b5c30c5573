// Text to token ids. Made of plain data, so that a worker can have the very encoder of its model without reading a file.
// `@huggingface/tokenizers` reads the normalizer and the pre-tokenizer; cutting into words and merging are ours. Text
// that merely spells an added token can be kept text: see `mark`. Knows nothing of decoding or chat templates.
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'
import { messageOf, OptionError, TokenizerError } from '../../base/errors.js'
import { type AddedToken, AddedTokens } from './addedTokens.js'
import { BytePairs, type BytePairTables } from './bytePairs.js'
import { type NormalForm, normalizeText } from './normalizeText.js'
import { Utf8Buffer } from './utf8Buffer.js'
import type { WholeWords } from './wholeWords.js'
import { WordSplitter } from './wordSplitter.js'

/** All that an encoder is made of. Can be posted; its large parts are shared where memory can be. */
export interface EncoderData {
  readonly normalizer: unknown // as tokenizer.json has it
  readonly preTokenizer: unknown
  readonly addedTokens: readonly AddedToken[]
  readonly pairs: BytePairTables
  readonly wholeWords: WholeWords | null
  readonly byteShares: Float64Array // [256] see byteShares()
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

export interface Encoding {
  readonly ids: Int32Array
  readonly sections: readonly Section[]
  /** The tokens that the text has where they are more than the limit; where it was not encoded to the end, or more. */
  readonly past: { readonly tokens: number; readonly isAtLeast: boolean } | null
}

/** Shorter texts are encoded to the end whatever the limit, so that people are told their exact length. */
export const COUNTED_CHARACTERS = 2 ** 18
const PIECE = 4096

export class Encoder {
  private readonly added: AddedTokens
  private readonly pairs: BytePairs
  private readonly normalize: (text: string) => string
  private readonly splitter: WordSplitter
  private readonly utf8 = new Utf8Buffer()

  constructor(private readonly data: EncoderData) {
    this.added = new AddedTokens(data.addedTokens)
    this.pairs = new BytePairs(data.pairs, data.wholeWords)
    const { normalizer, preTokenizer } = readLibrary(data)
    this.normalize = normalizer === null ? text => text : text => normalizer.normalize(text)
    this.splitter = new WordSplitter(preTokenizer)
  }

  /** The ids, and where parts begin that can be encoded on their own. A long text is given up at more ids than `limit`. */
  encode(text: string, options: EncodeOptions = {}, limit = Number.POSITIVE_INFINITY): Encoding {
    const ids = new IdList()
    const sections: Section[] = []
    const isLong = text.length > COUNTED_CHARACTERS && limit !== Number.POSITIVE_INFINITY
    const least = isLong ? this.leastTokens(text, options) : 0
    if (least <= limit) {
      this.run(text, options, isLong ? limit : Number.POSITIVE_INFINITY, {
        section: start => sections.push({ start, token: ids.length }),
        ids: own => ids.pushAll(own),
      })
    }
    const tokens = Math.max(least, ids.length)
    return { ids: ids.take(), sections, past: tokens > limit ? { tokens, isAtLeast: isLong } : null }
  }

  /** How many ids there are. */
  count(text: string, options: EncodeOptions = {}): number {
    let count = 0
    this.run(text, options, Number.POSITIVE_INFINITY, {
      section: () => {},
      ids: own => {
        count += own.length
      },
    })
    return count
  }

  /**
   * A number of tokens that the text has at least, known without cutting or merging. A token of n bytes has n shares of at
   * most 1/n each, so that no token accounts for more than one of the sum.
   */
  leastTokens(text: string, options: EncodeOptions = {}): number {
    const { byteShares } = this.data
    const { utf8 } = this
    let sum = 0
    for (const { start, end, token } of this.parts(text, options)) {
      if (token !== null) sum++
      else if (this.splitter.keepsAll) {
        for (const piece of pieces(this.normalPart(text, start, end, options))) {
          utf8.setText(piece)
          for (let i = 0; i < utf8.length; i++) sum += byteShares[utf8.bytes[i]]
        }
      }
    }
    return Math.ceil(sum * (1 - 1e-9))
  }

  /** Gives what it finds to `out`, until there are more ids than `limit`. */
  private run(text: string, options: EncodeOptions, limit: number, out: Sink): void {
    const { splitter, pairs } = this
    let count = 0
    const add = (ids: readonly number[]) => {
      out.ids(ids)
      count += ids.length
      return count <= limit
    }
    for (const { start, end, token } of this.parts(text, options)) {
      out.section(start)
      const isWithin =
        token !== null
          ? add([token.id])
          : this.forEachWord(this.normalPart(text, start, end, options), word =>
              add(pairs.encode(word, splitter.givesText)),
            )
      if (!isWithin) return
    }
  }

  /** The added tokens in the text, and what is between them. */
  private *parts(text: string, { allowSpecial, mark }: EncodeOptions): Generator<Part> {
    let start = 0
    if (allowSpecial !== false) {
      for (const { at, end, token } of this.added.find(text, mark)) {
        if (at > start) yield { start, end: at, token: null }
        yield { start: at, end, token }
        start = end
      }
    }
    if (start < text.length) yield { start, end: text.length, token: null }
  }

  private normalPart(text: string, start: number, end: number, { mark }: EncodeOptions): string {
    const part = text.slice(start, end)
    return this.normalize(mark ? part.replaceAll(mark, '') : part)
  }

  private forEachWord(text: string, visit: (word: string) => boolean): boolean {
    try {
      return this.splitter.forEach(text, visit)
    } catch (error) {
      // A pattern remembers each step through a word, and there is an end to how much it can.
      if (error instanceof RangeError) throw new OptionError('prompt', 'a word of millions of letters', 'shorter words')
      throw error
    }
  }
}

interface Part {
  readonly start: number
  readonly end: number
  readonly token: AddedToken | null
}

interface Sink {
  /** A section begins at this place of the text. */
  section(start: number): void
  ids(ids: readonly number[]): void
}

/** For each byte 1 / the length of the longest token that has it in it. */
export function byteShares(tokens: Iterable<Uint8Array>): Float64Array {
  const longest = new Float64Array(256).fill(1)
  for (const bytes of tokens) for (const byte of bytes) longest[byte] = Math.max(longest[byte], bytes.length)
  return longest.map(length => 1 / length)
}

/** Pieces of a size to work on, no character cut in two. */
function* pieces(text: string): Generator<string> {
  let end = 0
  for (let start = 0; start < text.length; start = end) {
    end = Math.min(text.length, start + PIECE)
    const last = text.charCodeAt(end - 1)
    if (last >= 0xd800 && last < 0xdc00) end = Math.min(text.length, end + 1)
    yield text.slice(start, end)
  }
}

/** What the library makes of a normalizer, as far as it is used here. */
interface LibraryNormalizer {
  readonly normalizers?: (LibraryNormalizer | null)[] // of a sequence
  readonly form?: NormalForm
  normalize(text: string): string
}

function readLibrary(data: EncoderData): { normalizer: LibraryNormalizer | null; preTokenizer: unknown } {
  try {
    // The library is given no vocabulary: it would spend seconds and memory on merge tables that are not used.
    const library = new LibraryTokenizer(
      {
        model: { type: 'BPE', vocab: {}, merges: [] },
        added_tokens: [],
        decoder: null,
        post_processor: null,
        normalizer: data.normalizer ?? null,
        pre_tokenizer: data.preTokenizer,
      } as unknown as ConstructorParameters<typeof LibraryTokenizer>[0],
      {},
    )
    const normalizer = library.normalizer as unknown as LibraryNormalizer | null
    boundNormalization(normalizer)
    return { normalizer, preTokenizer: library.pre_tokenizer }
  } catch (cause) {
    throw new TokenizerError(`tokenizer.json: ${messageOf(cause)}`, { cause })
  }
}

function boundNormalization(normalizer: LibraryNormalizer | null): void {
  if (normalizer === null) return
  for (const inner of normalizer.normalizers ?? []) boundNormalization(inner)
  const { form } = normalizer
  if (form !== undefined) normalizer.normalize = text => normalizeText(text, form)
}

/** A growing list of token ids, of four bytes each; the whole can be moved to another thread. */
class IdList {
  length = 0
  private values = new Int32Array(256)

  pushAll(ids: readonly number[]): void {
    if (this.length + ids.length > this.values.length) this.grow(this.length + ids.length)
    for (let i = 0; i < ids.length; i++) this.values[this.length++] = ids[i]
  }

  /** A copy of the ids. */
  take(): Int32Array {
    return this.values.slice(0, this.length)
  }

  private grow(needed: number): void {
    const grown = new Int32Array(Math.max(needed, 2 * this.values.length))
    grown.set(this.values)
    this.values = grown
  }
}
