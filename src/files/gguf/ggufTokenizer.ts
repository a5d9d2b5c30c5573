// tokenizer.json, tokenizer_config.json and the chat template, made of a GGUF file's metadata: byte-level pairs (`gpt2`) with
// the splitting rule that `pre` names. A rule that is not known here is refused, since it would give other tokens.
import { FormatError } from '../../base/errors.js'
import type { GgufFields } from './ggufFields.js'
import { show } from './ggufHeader.js'

const NORMAL = 1
const CONTROL = 3
const USER_DEFINED = 4

/** The letters of a word by the name of the rule: with `qwen35` marks count as letters. */
const LETTERS: ReadonlyMap<string, { readonly word: string; readonly other: string }> = new Map([
  ['qwen2', { word: '\\p{L}', other: '\\p{L}' }],
  ['qwen35', { word: '[\\p{L}\\p{M}]', other: '\\p{L}\\p{M}' }],
])

export interface TokenizerTexts {
  readonly tokenizer: string
  readonly config: string
  readonly template: string | null
}

/** Null for a file without a tokenizer. */
export function tokenizerOf(fields: GgufFields): TokenizerTexts | null {
  const model = fields.optionalString('tokenizer.ggml.model')
  if (model === undefined || model === 'none') return null
  if (model !== 'gpt2') refuse(fields, 'tokenizer.ggml.model', 'gpt2')
  if (fields.get('tokenizer.ggml.add_bos_token') === true) refuse(fields, 'tokenizer.ggml.add_bos_token', 'false')
  const tokens = fields.strings('tokenizer.ggml.tokens')
  return {
    tokenizer: tokenizerText(fields, tokens),
    config: JSON.stringify(specialTokens(fields, tokens)),
    template: fields.optionalString('tokenizer.chat_template') ?? null,
  }
}

function tokenizerText(fields: GgufFields, tokens: readonly string[]): string {
  const types = fields.numbers('tokenizer.ggml.token_type')
  if (types.length !== tokens.length) {
    fields.fail('tokenizer.ggml.token_type', `a list of ${tokens.length}, as the tokens`)
  }
  const seen = new Set<string>()
  const vocab: string[] = [] // as text: an object of a quarter of a million names takes ten times as long
  const added: unknown[] = []
  for (const [id, content] of tokens.entries()) {
    const type = types[id]
    if (type === CONTROL || type === USER_DEFINED) {
      const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false }
      added.push({ id, content, ...plain, special: type === CONTROL })
    } else if (type === NORMAL) {
      if (seen.has(content)) {
        throw new FormatError('BAD_METADATA', fields.file, `tokenizer.ggml.tokens has ${show(content)} twice`)
      }
      seen.add(content)
      vocab.push(`${JSON.stringify(content)}:${id}`)
    }
  }
  const rules = JSON.stringify({
    version: '1.0',
    added_tokens: added,
    normalizer: { type: 'NFC' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: splitPattern(fields) }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
  })
  const model = `{"type":"BPE","vocab":{${vocab.join(',')}},"merges":[${mergesOf(fields).join(',')}]}`
  return `${rules.slice(0, -1)},"model":${model}}`
}

function splitPattern(fields: GgufFields): string {
  const letters = LETTERS.get(fields.optionalString('tokenizer.ggml.pre') ?? '')
  if (letters === undefined) return refuse(fields, 'tokenizer.ggml.pre', [...LETTERS.keys()].join(' or '))
  const { word, other } = letters
  return [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    `[^\\r\\n\\p{L}\\p{N}]?${word}+`,
    '\\p{N}',
    ` ?[^\\s${other}\\p{N}]+[\\r\\n]*`,
    '\\s*[\\r\\n]+',
    '\\s+(?!\\S)',
    '\\s+',
  ].join('|')
}

/** Two tokens with a space between them; byte characters have none. */
function mergesOf(fields: GgufFields): string[] {
  return fields.strings('tokenizer.ggml.merges').map(merge => {
    const space = merge.indexOf(' ', 1)
    if (space < 0 || space === merge.length - 1) {
      throw new FormatError('BAD_METADATA', fields.file, `tokenizer.ggml.merges has ${show(merge)}, want two tokens`)
    }
    return `[${JSON.stringify(merge.slice(0, space))},${JSON.stringify(merge.slice(space + 1))}]`
  })
}

function specialTokens(fields: GgufFields, tokens: readonly string[]): Record<string, string> {
  const names = { bos_token: 'bos', eos_token: 'eos', pad_token: 'padding', unk_token: 'unknown' }
  return Object.fromEntries(
    Object.entries(names).flatMap(([name, key]) => {
      const id = fields.optionalNumber(`tokenizer.ggml.${key}_token_id`)
      if (id === undefined) return []
      return tokens[id] === undefined ? fields.fail(`tokenizer.ggml.${key}_token_id`, 'a token') : [[name, tokens[id]]]
    }),
  )
}

function refuse(fields: GgufFields, key: string, want: string): never {
  throw new FormatError('UNSUPPORTED_MODEL', fields.file, `${key} is ${show(fields.get(key))}, want ${want}`)
}
