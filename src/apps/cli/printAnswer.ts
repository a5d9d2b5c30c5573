// Shows an answer while it streams: text to stdout, thoughts to stderr, both with lines broken between words on a terminal; and
// afterwards how fast it was.
import type { EndReason, EngineStats, EventStream, Model, ModelStats, SessionEvent, Usage } from '../../index.js'
import type { Cli } from './action.js'
import { MarkdownStyler } from './chat/markdownStyler.js'
import { formatPercent, threeDigits } from './format.js'
import { colours, columnsOf } from './terminal.js'
import { WordWrapper } from './wordWrapper.js'

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

/** Null where stdout is no terminal: the answer goes there as it is. `isPlain`: the text is no Markdown. */
export function answerStyle(isPlain = false): AnswerStyler | null {
  if (!process.stdout.isTTY) return null
  const wrapper = new WordWrapper(() => columnsOf(process.stdout))
  const styler = isPlain || !colours(process.stdout) ? null : new MarkdownStyler()
  return {
    push(text) {
      if (styler === null) return wrapper.push(text)
      // One by one: whether a character is of a block of code is known when it has been styled.
      let out = ''
      for (const character of text) out += wrapper.push(styler.push(character), styler.isInFence)
      return out
    },
    end: () => wrapper.push(styler?.end() ?? '') + wrapper.end(),
  }
}

/** Fills `shown` as the events come, so that what was shown is known even when the stream fails. */
export async function printAnswer(
  cli: Cli,
  events: AsyncIterable<SessionEvent>,
  shown: ShownAnswer,
  styler: AnswerStyler | null = null,
): Promise<void> {
  let thoughts: WordWrapper | null = null // while the model thinks
  const showThought = (text: string) => {
    if (text !== '') cli.errorText(cli.dim(text))
  }
  const endThoughts = (space: string) => {
    if (thoughts === null) return
    showThought(thoughts.end())
    cli.errorText(space)
    thoughts = null
  }
  try {
    for await (const event of events) {
      if (event.type === 'text') {
        endThoughts('\n\n')
        shown.text += event.text
        await cli.print(styler?.push(event.text) ?? event.text)
      } else if (event.type === 'thinking') {
        shown.thinking += event.text
        if (cli.quiet) continue
        thoughts ??= new WordWrapper(() => cli.errorWidth)
        showThought(thoughts.push(event.text))
      } else if (event.type === 'usage') shown.usage = event
      else if (event.type === 'end') shown.reason = event.reason
    }
  } finally {
    endThoughts('\n')
    const rest = (styler?.end() ?? '') + (shown.text === '' || shown.text.endsWith('\n') ? '' : '\n')
    if (rest !== '') await cli.print(rest)
  }
}

/** One object when the answer is whole; nothing of one that failed. */
export async function printJsonAnswer(cli: Cli, model: Model, events: EventStream): Promise<void> {
  const { text, thinking, reason, usage } = await events.answer()
  const perSecond = (tokens: number, seconds: number) => (tokens > 0 && seconds > 0 ? tokens / seconds : null)
  await cli.printJson({
    model: model.name,
    backend: model.backend,
    text,
    thinking,
    reason,
    usage,
    promptTokensPerSecond: perSecond(usage.newTokens, usage.promptSeconds),
    answerTokensPerSecond: perSecond(usage.answerTokens, usage.answerSeconds),
  })
}

function rate(tokens: number, seconds: number): string {
  return `${threeDigits(tokens / Math.max(seconds, 1e-3))} tok/s`
}

/** '306 tok/s · 216 tokens'. */
export function speedLine({ answerTokens, answerSeconds }: Usage): string {
  return `${rate(answerTokens, answerSeconds)} · ${answerTokens} ${answerTokens === 1 ? 'token' : 'tokens'}`
}

/** The rest: 'prompt 14 new + 120 cached tokens, 300 tok/s · 41 of 50 guesses right · 97.1% of experts were in memory'. */
export function answerDetails(usage: Usage, before: ModelStats, after: EngineStats): string {
  const prompt = usage.cachedTokens > 0 ? `${usage.newTokens} new + ${usage.cachedTokens} cached` : `${usage.newTokens}`
  const speed = usage.newTokens > 0 ? `, ${rate(usage.newTokens, usage.promptSeconds)}` : ''
  const parts = [`prompt ${prompt} tokens${speed}`]
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
