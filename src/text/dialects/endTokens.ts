// The tokens that end an answer: those of the model's configuration, and those of its dialect that the tokenizer has.
import type { Tokenizer } from '../tokenizer/tokenizer.js'
import type { Dialect } from './dialect.js'

export function endTokenIds(eosTokenIds: readonly number[], { endTokens }: Dialect, tokenizer: Tokenizer): number[] {
  return [...new Set([...eosTokenIds, ...endTokens.flatMap(text => tokenizer.addedToken(text)?.id ?? [])])]
}
