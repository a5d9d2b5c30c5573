// The demo tokenizer's pieces as a constraint wants them, without going through the text room.
import { readFileSync } from 'node:fs'
import { type ConstraintVocabulary, pieceBytes } from '#moeflux/grammar/automaton/vocabularyBytes.js'

interface TokenizerJson {
  model: { vocab: Record<string, number> }
  added_tokens: { id: number; content: string }[]
}

export function demoVocabulary(): ConstraintVocabulary & { readonly pieces: readonly string[] } {
  const json = JSON.parse(readFileSync('demo-model/tokenizer.json', 'utf8')) as TokenizerJson
  const pieces = new Array<string>(8192).fill('')
  for (const [piece, id] of Object.entries(json.model.vocab)) pieces[id] = piece
  for (const { id } of json.added_tokens) pieces[id] = ''
  return { pieces, piece: token => pieces[token], vocabSize: 8192, stopTokenIds: [8185, 8183] }
}

/** The text of a run of tokens; throws where they are not valid UTF-8. */
export function decodePieces(pieces: readonly string[]): string {
  return new TextDecoder('utf-8', { fatal: true }).decode(pieceBytes(pieces.join(''))!)
}
