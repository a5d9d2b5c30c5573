// What `/stats` shows of a conversation, and how its tokens are counted.

import type { Model, ModelStats, Session } from '../../../index.js'
import type { DraftStats } from '../../../internal.js'
import { formatBytes, formatInteger, formatPercent } from '../format.js'
import type { ShownAnswer } from '../printAnswer.js'

export function chatStats(
  model: Model,
  { states, bytes }: Session['state'],
  counts: { readonly messages: number; readonly answerTokens: number; readonly lastSpeed: string | null },
): [string, string][] {
  const stats = model.stats()
  const wanted = stats.expertHits + stats.expertMisses
  return [
    ['model', `${model.name}, ${model.backendDescription}`],
    ...(counts.lastSpeed === null ? [] : [['last answer', counts.lastSpeed] as [string, string]]),
    ['messages', String(counts.messages)],
    ['tokens', `${formatInteger(stats.promptTokens)} of prompts, ${formatInteger(counts.answerTokens)} of answers`],
    ...(stats.drafts ? [['guesses', draftsLine(stats.drafts)] as [string, string]] : []),
    ['experts in memory', `${formatPercent(stats.expertHits / wanted)} of ${formatInteger(wanted)} wanted`],
    ['read from disk', formatBytes(stats.bytesRead)],
    ['expert memory', `${stats.expertSlotsUsed} of ${stats.expertSlots} slots, ${formatBytes(stats.expertMemory)}`],
    ['kept states', `${states}, ${formatBytes(bytes)}`],
  ]
}

/** '120 of 150 right; 2 at a time now, 31% faster than without'. */
export function draftsLine({ guesses, accepted, now, reason }: DraftStats): string {
  return `${formatInteger(accepted)} of ${formatInteger(guesses)} right; ${now} at a time now, ${reason}`
}

/** The last token of an answer is never evaluated; of one that was cut off only the evaluated tokens are known. */
export function answerLength({ usage, reason }: ShownAnswer, before: ModelStats, after: ModelStats): number {
  return usage !== null && reason !== null ? usage.answerTokens : after.decodeTokens - before.decodeTokens
}
