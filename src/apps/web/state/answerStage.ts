// What happens before the first token of an answer, and how long it may still take. Pure: the time is given.

export interface AnswerStage {
  readonly kind: 'loading' | 'prompt'
  readonly done: number // of the model in hundredths, or tokens of the prompt
  readonly total: number // 0: not known
  readonly cached: number // tokens of the prompt that had been read before
  readonly begunAt: number // milliseconds, by any clock
  readonly toldAt: number // by the same
}

/** The stage after news of it: the same one goes on, another one begins now. */
export function nextStage(
  before: AnswerStage | null,
  news: Pick<AnswerStage, 'kind' | 'done' | 'total' | 'cached'>,
  now: number,
): AnswerStage {
  return { ...news, begunAt: before?.kind === news.kind ? before.begunAt : now, toldAt: now }
}

/** By the pace so far; null where there is none yet. */
export function secondsLeft({ done, total, begunAt, toldAt }: AnswerStage, now: number): number | null {
  if (done <= 0 || toldAt <= begunAt || done >= total) return null
  const atTold = ((toldAt - begunAt) / done) * (total - done)
  return Math.max(0, atTold - (now - toldAt)) / 1000
}
