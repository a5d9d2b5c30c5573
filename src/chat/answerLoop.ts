// One answer, token by token: choose, write, evaluate, and stop where it should stop. Where the model can guess ahead, several tokens come
// of one step. Works on a context that stands at the end of its prompt and leaves it at the end of what was evaluated: the last
// token of an answer is not. Knows nothing of caches and prompts.
import { type GuessedRows, MOST_GUESSES } from '../backends/backend.js'
import { ExpertReadError, OutOfMemoryError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { DraftGovernor } from '../engine/draftGovernor.js'
import type { TokenConstraint } from '../grammar/constraint.js'
import { GuessChooser } from '../text/sampling/draftSampler.js'
import type { Sampler } from '../text/sampling/sampler.js'
import { type AnswerProgress, AnswerWriter, type WriterOptions } from './answerWriter.js'
import type { SessionEvent } from './events.js'

export interface AnswerRun extends WriterOptions {
  readonly context: Context
  readonly logits: Float32Array // [vocab], at the end of the prompt
  readonly sampler: Sampler
  readonly constraint: TokenConstraint | null
  readonly drafts: DraftGovernor | null
  readonly signal: AbortSignal
  /** Does the work, and again when memory had to be made for it. */
  readonly withRoom: <T>(work: () => Promise<T>) => Promise<T>
}

/** What the model says of the next token: all of it, or its favourite alone. */
interface Row {
  readonly logits: Float32Array | null // [vocab]
  readonly argmax: number
}

export async function* answerLoop(run: AnswerRun, progress: AnswerProgress): AsyncGenerator<SessionEvent, void> {
  const { drafts } = run
  const answer = new GrowingAnswer(run, progress)
  drafts?.answerBegins()
  let goesOn = run.limit > 0 && (await answer.choose({ logits: run.logits, argmax: -1 }))
  yield* answer.writer.flush()
  while (goesOn) {
    run.signal.throwIfAborted()
    const started = performance.now()
    const count = drafts?.next(answer.mostGuesses) ?? 0
    goesOn = count > 0 ? await answer.guessAhead(count) : await answer.evaluateOne()
    answer.roundDone(count, (performance.now() - started) / 1000)
    yield* answer.writer.flush()
  }
  answer.writer.end()
  yield* answer.writer.flush()
}

class GrowingAnswer {
  readonly writer: AnswerWriter
  private readonly wantsLogits: boolean
  private readonly into: Float32Array // [vocab]
  private readonly chooser: GuessChooser | null
  private token = -1 // chosen, and not evaluated yet
  private round = { guesses: 0, right: 0 } // the last one
  private mayGuess = true

  constructor(
    private readonly run: AnswerRun,
    private readonly progress: AnswerProgress,
  ) {
    const { sampler, constraint, logprobs, drafts } = run
    this.writer = new AnswerWriter(run, progress)
    this.wantsLogits = !sampler.isArgmax || constraint !== null || logprobs !== null
    this.into = new Float32Array(run.logits.length)
    this.chooser = drafts === null || !this.wantsLogits ? null : new GuessChooser(sampler)
  }

  /** A constraint that cannot look ahead does not know what it allows behind a guess. */
  get mostGuesses(): number {
    const { constraint } = this.run
    const looksAhead = constraint === null || constraint.maskAfter !== undefined
    return this.mayGuess ? Math.min(this.writer.room - 1, looksAhead ? MOST_GUESSES : 1) : 0
  }

  /** Chooses the next token and takes it up; false: the answer ends with it. `guess`: the number of the guess made there. */
  async choose({ logits, argmax }: Row, guess?: number): Promise<boolean> {
    const { sampler, constraint } = this.run
    const { forced } = this.writer
    if (forced !== null) this.token = forced
    else if (logits === null) this.token = argmax
    else {
      const mask = constraint === null ? null : await constraint.mask()
      const isGuessed = guess !== undefined && this.chooser !== null
      this.token = isGuessed ? this.chooser.choose(logits, guess, mask) : sampler.sample(logits, mask)
    }
    constraint?.accept(this.token)
    return this.writer.take(this.token, logits)
  }

  async evaluateOne(): Promise<boolean> {
    const { context, signal, withRoom } = this.run
    const { token, into } = this
    this.round = { guesses: 0, right: 0 }
    const row: Row = this.wantsLogits
      ? { logits: await withRoom(() => context.evalToken(token, { signal, into })), argmax: -1 }
      : { logits: null, argmax: await withRoom(() => context.evalTokenGreedy(token, { signal })) }
    return await this.choose(row)
  }

  /** Guesses what comes, and evaluates it with the token before; as much of it becomes part of the answer as comes true. */
  async guessAhead(count: number): Promise<boolean> {
    try {
      const guesses = await this.draft(this.token, count)
      if (guesses.length > 0) return await this.check(guesses)
    } catch (error) {
      // Text does not depend on guesses: nothing is given up for them, and what the head cannot read may be all that cannot be. Trying
      // again with each token might take long: a read is not given up at once.
      if (!(error instanceof OutOfMemoryError || error instanceof ExpertReadError)) throw error
      this.mayGuess = false
    }
    return await this.evaluateOne()
  }

  private async check(guesses: readonly number[]): Promise<boolean> {
    const { context, signal } = this.run
    const { token } = this
    let goesOn = true
    let right = 0
    const keep = async (rows: GuessedRows) => {
      for (let i = 0; goesOn; i++) {
        goesOn = await this.choose(rowOf(rows, i), i)
        if (!goesOn || this.token !== guesses[i]) break
        right++
      }
      this.round = { guesses: guesses.length, right }
      this.progress.guesses += guesses.length
      this.progress.acceptedGuesses += right
      return right + 1
    }
    const output = this.wantsLogits ? 'all' : 'argmax'
    await context.evalGuesses([token, ...guesses], { output, keep, signal })
    return goesOn
  }

  private async draft(token: number, count: number): Promise<readonly number[]> {
    const { context, signal, eosTokenIds } = this.run
    const { chooser } = this
    if (chooser === null) {
      const guesses = await context.draft(token, count, { signal })
      const end = guesses.findIndex(guess => eosTokenIds.has(guess))
      return end < 0 ? guesses : guesses.slice(0, end)
    }
    chooser.begin()
    const guesses: number[] = []
    const choose = async (logits: Float32Array) => {
      const mask = await this.maskAfter(guesses)
      if (mask === undefined) return null
      const guess = chooser.guess(logits, mask)
      if (guess === null) return null
      guesses.push(guess)
      return eosTokenIds.has(guess) ? null : guess
    }
    return await context.draft(token, count, { signal, choose })
  }

  /** What may follow these guesses; undefined: nobody can tell. */
  private async maskAfter(guesses: readonly number[]): Promise<Uint32Array | null | undefined> {
    const { constraint } = this.run
    if (constraint === null) return null
    return guesses.length === 0 ? await constraint.mask() : await constraint.maskAfter?.(guesses)
  }

  /** Tells the governor. A round that was to have guesses and got none says nothing of those without. */
  roundDone(asked: number, seconds: number): void {
    const { guesses, right } = this.round
    if (asked === 0 || guesses > 0) this.run.drafts?.roundDone({ guesses, right, seconds })
  }
}

function rowOf({ logits, argmax }: GuessedRows, row: number): Row {
  const vocabSize = logits === null ? 0 : logits.length / argmax.length
  return { logits: logits?.subarray(row * vocabSize, (row + 1) * vocabSize) ?? null, argmax: argmax[row] }
}
