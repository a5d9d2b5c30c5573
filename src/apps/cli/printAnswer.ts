// Shows an answer while it streams: text to stdout, thoughts to stderr, and afterwards one line with the
// speed. Knows nothing of prompts.
import type { EndReason, EngineStats, ModelStats, SessionEvent, Usage } from '../../index.js'
import type { Cli } from './action.js'
import { formatPercent, threeDigits } from './format.js'

export interface ShownAnswer {
  text: string
  thinking: string
  usage: Usage | null
  reason: EndReason | null // null: it was cut off
}

export function noAnswer(): ShownAnswer {
  return { text: '', thinking: '', usage: null, reason: null }
}

export interface AnswerStyler {
  push(text: string): string
  end(): string
}

/** Fills `shown` as the events come, so that what was shown is known even when the stream fails. */
export async function printAnswer(
  cli: Cli,
  events: AsyncIterable<SessionEvent>,
  shown: ShownAnswer,
  styler: AnswerStyler | null = null,
): Promise<void> {
  let thoughtsOpen = false
  try {
    for await (const event of events) {
      if (event.type === 'text') {
        if (thoughtsOpen) cli.errorText('\n\n')
        thoughtsOpen = false
        shown.text += event.text
        await cli.print(styler?.push(event.text) ?? event.text)
      } else if (event.type === 'thinking') {
        shown.thinking += event.text
        if (cli.quiet) continue
        thoughtsOpen = true
        cli.errorText(cli.dim(event.text))
      } else if (event.type === 'usage') shown.usage = event
      else if (event.type === 'end') shown.reason = event.reason
    }
  } finally {
    if (thoughtsOpen) cli.errorText('\n')
    const rest = (styler?.end() ?? '') + (shown.text === '' || shown.text.endsWith('\n') ? '' : '\n')
    if (rest !== '') await cli.print(rest)
  }
}

/** '42 tokens, 120 tok/s · prompt 14 new + 120 cached tokens, 300 tok/s · 41 of 50 guesses right · 97.1% of experts were in memory'. */
export function speedLine(usage: Usage, before: ModelStats, after: EngineStats): string {
  const rate = (tokens: number, seconds: number) => `${threeDigits(tokens / Math.max(seconds, 1e-3))} tok/s`
  const prompt = usage.cachedTokens > 0 ? `${usage.newTokens} new + ${usage.cachedTokens} cached` : `${usage.newTokens}`
  const parts = [
    `${usage.answerTokens} tokens, ${rate(usage.answerTokens, usage.answerSeconds)}`,
    `prompt ${prompt} tokens, ${rate(usage.newTokens, usage.promptSeconds)}`,
  ]
  const guesses = guessesOf(usage, after)
  if (guesses !== null) parts.push(guesses)
  const hits = after.expertHits - before.expertHits
  const misses = after.expertMisses - before.expertMisses
  if (hits + misses > 0) parts.push(`${formatPercent(hits / (hits + misses))} of experts were in memory`)
  return parts.join(' · ')
}

/** '41 of 50 guesses right'; where none are made now, why that is so. Null: of a model that does not guess. */
function guessesOf({ drafts: made }: Usage, { drafts }: EngineStats): string | null {
  if (!drafts) return null
  const right = made && `${made.accepted} of ${made.accepted + made.rejected} guesses right`
  if (drafts.now > 0) return right ?? 'no guesses'
  return `${right === undefined ? 'no guesses' : `${right}, none now`} (${drafts.reason})`
}
