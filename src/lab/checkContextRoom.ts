// Tells before anything is evaluated that a prompt and what follows it are longer than the context, in the words of `run`.
import { ContextLimitError, type Model } from '../index.js'

export function checkContextRoom({ contextLength }: Model, promptTokens: number, answerTokens: number): void {
  const length = promptTokens + answerTokens
  if (length > contextLength) throw new ContextLimitError(length, contextLength, { promptTokens, answerTokens })
}
