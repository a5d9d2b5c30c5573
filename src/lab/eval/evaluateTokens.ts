// Evaluates a list of tokens and gathers the logits and log-probabilities that were asked for. A text that is longer than
// the context is cut into windows, each evaluated from an empty context; the first token of a window has no logits before
// it and is not scored.
import { type FileHandle, open, rm, stat } from 'node:fs/promises'
import { endianness } from 'node:os'
import type { Cli } from '../../apps/cli/action.js'
import { formatFields, formatInteger, threeDigits } from '../../apps/cli/format.js'
import { readStdin } from '../../apps/cli/promptInput.js'
import { availableMemory } from '../../base/nodeMemory.js'
import { readRegular } from '../../base/regularFile.js'
import { writing } from '../../files/diskFull.js'
import { type Context, ContextLimitError, type Model, MoefluxError, type Tokenizer, UsageError } from '../../index.js'
import { tokenLogprobs } from '../../text/sampling/sampler.js'

export interface EvaluateRequest {
  readonly tokens: readonly number[] | null // else `text`
  readonly text?: EvaluatedText
  readonly logits?: string // a file
  readonly allLogits?: boolean
  readonly json?: boolean
}

export interface EvaluatedText {
  readonly file: string
  readonly content: string
}

interface Score {
  nll: number // summed over tokens, natural log
  scored: number // tokens
}

interface Result {
  readonly model: string
  readonly backend: string
  readonly tokens: number
  readonly windows: number
  readonly tokensPerSecond: number
  readonly scored?: number // tokens
  readonly nll?: number // mean per scored token, natural log
  readonly perplexity?: number
  readonly next: readonly NextToken[] // likeliest first, after the last token
}

interface NextToken {
  readonly token: number
  readonly text: string | null
  readonly logprob: number
}

/** Logits of every position come in slices of at most this size: a chunk of a large vocabulary takes half a gigabyte. */
const SLICE_BYTES = 128 * 2 ** 20
const SLICE_SHARE = 0.1 // of what is free, where that is little
const FAVOURITES = 5

export async function evaluateTokens(cli: Cli, model: Model, request: EvaluateRequest): Promise<void> {
  const { tokenizer } = model
  const tokens = request.tokens ?? textTokens(model, tokenizer, request.text as EvaluatedText)
  checkTokens(tokens, model, request.tokens !== null)
  const windows = cutWindows(tokens, model.contextLength)
  if (windows.length > 1) {
    cli.notice(
      `${formatInteger(tokens.length)} tokens in ${windows.length} windows of ${formatInteger(model.contextLength)}, the context limit; each starts empty, its first token is not scored`,
    )
  }
  const output = request.logits === undefined ? null : await LogitsFile.create(request.logits)
  const score: Score = { nll: 0, scored: 0 }
  const bar = cli.progressBar('tokens')
  const started = performance.now()
  let last: Float32Array | null = null // [vocab]
  let done = 0
  try {
    for (const window of windows) {
      const context = model.createContext({ maxCheckpoints: 0 })
      const onProgress = (count: number) =>
        bar.update({ phase: 'evaluating', loaded: done + count, total: tokens.length })
      if (request.allLogits || request.tokens === null) {
        const rows = request.allLogits ? output : null
        last = await evaluateRows(context, window, model.vocabSize, { rows, score, onProgress, signal: cli.signal })
      } else last = await context.evalPrompt(window, { signal: cli.signal, onProgress })
      await context.close()
      done += window.length
    }
    if (!request.allLogits) await output?.write(last as Float32Array)
    await output?.close()
  } catch (error) {
    await output?.discard()
    throw error
  } finally {
    bar.clear()
  }
  const seconds = (performance.now() - started) / 1000
  const result: Result = {
    model: model.name,
    backend: model.backend,
    tokens: tokens.length,
    windows: windows.length,
    tokensPerSecond: tokens.length / seconds,
    ...(score.scored > 0 && {
      scored: score.scored,
      nll: score.nll / score.scored,
      perplexity: Math.exp(score.nll / score.scored),
    }),
    next: favourites(last as Float32Array, tokenizer),
  }
  if (request.json) await cli.printJson(result)
  else await cli.print(resultText(result))
}

/** Equal windows of `size` tokens; the last one holds the rest. */
export function cutWindows(tokens: readonly number[], size: number): (readonly number[])[] {
  const windows: (readonly number[])[] = []
  for (let start = 0; start < tokens.length; start += size) windows.push(tokens.slice(start, start + size))
  return windows
}

interface RowOptions {
  readonly rows: LogitsFile | null
  readonly score: Score
  readonly onProgress: (done: number) => void
  readonly signal: AbortSignal
}

/** Evaluates a window slice by slice with the logits of every position; returns the last row. */
async function evaluateRows(
  context: Context,
  window: readonly number[],
  vocabSize: number,
  options: RowOptions,
): Promise<Float32Array> {
  const most = Math.min(SLICE_BYTES, SLICE_SHARE * availableMemory().bytes)
  const size = Math.max(1, Math.floor(most / (4 * vocabSize)))
  let row: Float32Array = new Float32Array(0)
  for (let start = 0; start < window.length; start += size) {
    const slice = window.slice(start, start + size)
    const { logits } = await context.evaluate(slice, { logits: 'all', signal: options.signal })
    const rows = logits as Float32Array // [slice, vocab]
    await options.rows?.write(rows)
    for (let i = 0; i < slice.length; i++) {
      row = rows.subarray(i * vocabSize, (i + 1) * vocabSize)
      const next = window[start + i + 1]
      if (next === undefined) break
      options.score.nll -= tokenLogprobs(row, next, 0).logprob
      options.score.scored++
    }
    options.onProgress(start + slice.length)
  }
  return row
}

/** Read before the model is opened, which may take a while: a name that was mistyped is told at once. */
export async function readText(cli: Cli, file: string): Promise<EvaluatedText> {
  return { file, content: file === '-' ? await readStdin(cli.signal) : (await readRegular(file)).toString('utf8') }
}

function textTokens(model: Model, tokenizer: Tokenizer | null, { file, content }: EvaluatedText): number[] {
  if (tokenizer === null) {
    throw new MoefluxError(
      'NO_TOKENIZER',
      `${model.folder.location}: has no tokenizer.json; --tokens works without one`,
    )
  }
  const tokens = tokenizer.encode(content, { allowSpecial: false })
  if (tokens.length < 2) throw new UsageError(`${file}: want a text of at least two tokens`)
  return tokens
}

/** A text is cut into windows; a list of ids is what the user wants to see evaluated whole. */
function checkTokens(tokens: readonly number[], model: Model, given: boolean): void {
  const wrong = tokens.findIndex(token => token >= model.vocabSize)
  if (wrong >= 0) {
    throw new UsageError(`--tokens: id ${tokens[wrong]} at ${wrong} is outside the vocabulary of ${model.vocabSize}`)
  }
  if (given && tokens.length > model.contextLength) throw new ContextLimitError(tokens.length, model.contextLength)
}

function favourites(logits: Float32Array, tokenizer: Tokenizer | null): NextToken[] {
  return tokenLogprobs(logits, 0, FAVOURITES).top.map(({ token, logprob }) => ({
    token,
    text: tokenizer?.decode([token]) ?? null,
    logprob,
  }))
}

function resultText(result: Result): string {
  const fields: [string, string][] = [
    ['tokens', `${formatInteger(result.tokens)}, ${threeDigits(result.tokensPerSecond)} tok/s on ${result.backend}`],
  ]
  if (result.perplexity !== undefined && result.nll !== undefined) {
    fields.push(['perplexity', `${result.perplexity.toFixed(4)} (${result.nll.toFixed(5)} per token, natural log)`])
  }
  const next = result.next.map(
    ({ token, text, logprob }) =>
      `${token}${text === null ? '' : ` ${JSON.stringify(text)}`} ${(100 * Math.exp(logprob)).toFixed(1)}%`,
  )
  fields.push(['next', next.join(', ')])
  return formatFields(fields)
}

/**
 * A file of float32 numbers, little-endian, row after row. Written as it grows: logits of every position of a long text
 * do not fit memory. A file that could not be finished is taken away.
 */
export class LogitsFile {
  private constructor(
    private readonly path: string,
    private readonly file: FileHandle,
  ) {}

  static async create(path: string): Promise<LogitsFile> {
    return new LogitsFile(path, await open(path, 'w'))
  }

  /** Appends `rows` whole. */
  async write(rows: Float32Array): Promise<void> {
    let bytes = Buffer.from(rows.buffer, rows.byteOffset, rows.byteLength)
    if (endianness() === 'BE') bytes = Buffer.from(bytes).swap32()
    await writing(this.path, async () => {
      for (let at = 0; at < bytes.length; ) at += (await this.file.write(bytes, at)).bytesWritten
    })
  }

  close(): Promise<void> {
    return writing(this.path, () => this.file.close())
  }

  async discard(): Promise<void> {
    await this.file.close().catch(() => {})
    const info = await stat(this.path).catch(() => null)
    if (info?.isFile()) await rm(this.path, { force: true }) // not a device such as /dev/stdout
  }
}
