// Every error that moeflux throws on purpose, but for memoryErrors.ts. Each class has a stable
// `code` for programs and a message for people that names what was got, what was wanted and where.
// Nothing here knows how to recover.
import { diskLack, formatBytes } from './formatBytes.js'

export class MoefluxError extends Error {
  readonly code: string

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(shortened(message), options)
    this.name = new.target.name
    this.code = code
  }
}

const LONGEST_MESSAGE = 800

/** A message may quote what a stranger wrote, however much that is; people and logs get the beginning and the end. */
function shortened(message: string): string {
  if (message.length <= LONGEST_MESSAGE) return message
  const end = LONGEST_MESSAGE / 4
  return `${message.slice(0, LONGEST_MESSAGE - end)} … ${message.slice(-end)}`
}

/** A value of a JSON file in a few words. Lists and objects may be nested deeper than JSON.stringify can follow. */
function shown(value: unknown): string {
  if (value === undefined) return 'missing'
  if (typeof value === 'number') return String(value)
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  if (!Array.isArray(value)) return 'an object'
  return value.some(item => typeof item === 'object') ? 'a list' : JSON.stringify(value)
}

/** What went wrong, in words, whatever was thrown: stores and callbacks of others may throw anything. */
export function messageOf(thrown: unknown): string {
  if (typeof thrown === 'string') return thrown
  // Not all that say what is wrong are Errors of this realm.
  const { message, name } = (thrown ?? {}) as { message?: unknown; name?: unknown }
  if (typeof message === 'string') return message || String(name)
  return `${thrown === undefined || typeof thrown === 'function' ? typeof thrown : shown(thrown)} was thrown`
}

// --- bytes at rest -------------------------------------------------------------------------------------------------

/** A file that is not what its format demands. `detail` says which rule it breaks. */
export class FormatError extends MoefluxError {
  constructor(
    code: string,
    readonly file: string,
    readonly detail: string,
    options?: { cause?: unknown },
  ) {
    super(code, `${file}: ${detail}`, options)
  }
}

/** A read that failed, came up short, or went past the end of its file; none wanted: it could not be opened. */
export class ReadError extends MoefluxError {
  constructor(
    readonly file: string,
    readonly offset: number,
    readonly wanted: number,
    readonly detail: string,
    options?: { cause?: unknown; code?: string },
  ) {
    super(
      options?.code ?? 'READ_FAILED',
      `${file}: ${detail}${wanted === 0 ? '' : ` (${wanted} bytes at ${offset})`}`,
      options,
    )
  }
}

/** Bytes that were read well, several times, and are not those that were packed. */
export class ChecksumError extends ReadError {
  constructor(file: string, offset: number, wanted: number) {
    const detail = 'its bytes do not match their checksum: the file is damaged, or is being written'
    super(file, offset, wanted, detail, { code: 'CHECKSUM_MISMATCH' })
  }
}

/** A config field whose value this engine would compute wrongly or not at all. */
export class UnsupportedModelError extends MoefluxError {
  constructor(
    readonly field: string,
    readonly got: unknown,
    readonly want: string,
  ) {
    super('UNSUPPORTED_MODEL', `config.json: ${field} is ${shown(got)}, want ${want}`)
  }
}

/** A tensor that is missing, has another shape or type, or reaches past its file. */
export class TensorError extends MoefluxError {
  constructor(
    readonly tensor: string,
    readonly detail: string,
    /** That holds or lists it, or the folder; null: the reader of the file adds it. */
    readonly file: string | null = null,
  ) {
    super('BAD_TENSOR', `${file === null ? '' : `${file}: `}tensor ${tensor}: ${detail}`)
  }
}

export class ModelNotFoundError extends MoefluxError {
  constructor(
    readonly folder: string,
    detail: string,
  ) {
    super('MODEL_NOT_FOUND', `${folder}: ${detail}`)
  }
}

/** `path` is what could not be written; without a cause: what would not fit, found out before anything is written. */
export class DiskFullError extends MoefluxError {
  constructor(
    readonly path: string,
    readonly needed: number | null, // null: nobody knows how much more there would have been
    readonly free: number | null,
    options?: { cause?: unknown },
  ) {
    const isPlanned = options?.cause === undefined && needed !== null && free !== null
    const sizes = [
      needed === null ? '' : `needs ${formatBytes(needed)} more`,
      free === null ? '' : `${formatBytes(free)} are free`,
    ]
    const full = ['the disk is full', sizes.filter(size => size !== '').join(', ')].filter(part => part !== '')
    super('DISK_FULL', `${path}: ${isPlanned ? diskLack(needed, free) : full.join(': ')}`, options)
  }
}

/** A folder that a conversion may not write into. */
export class TargetError extends MoefluxError {
  constructor(
    readonly folder: string,
    detail: string,
  ) {
    super('BAD_TARGET', `${folder}: ${detail}`)
  }
}

/** Another process works there. */
export class LockedError extends MoefluxError {
  constructor(readonly lock: string) {
    super('LOCKED', `${lock}: another process is at work there`)
  }
}

/** Another process has taken over what this one was doing; this one has stopped, and nothing of both is mixed. */
export class LockLostError extends MoefluxError {
  constructor(
    readonly lock: string,
    options?: { cause?: unknown },
  ) {
    const detail =
      'the lock was taken away: this process was suspended, or silent, for too long. It has written nothing since'
    super('LOCK_LOST', `${lock}: ${detail}`, options)
  }
}

// --- experts -------------------------------------------------------------------------------------------------------

/** An expert could not be read after all retries. The context is at its last token boundary and stays usable. */
export class ExpertReadError extends MoefluxError {
  constructor(
    readonly layer: number,
    readonly expert: number,
    readonly file: string,
    readonly offset: number,
    readonly detail: string,
    options?: { cause?: unknown },
  ) {
    super('EXPERT_READ', `expert ${expert} of layer ${layer}: ${detail} (${file} at ${offset})`, options)
  }
}

// --- evaluation ----------------------------------------------------------------------------------------------------

/** An option whose value is outside what it may be. */
export class OptionError extends MoefluxError {
  constructor(
    readonly option: string,
    readonly got: unknown,
    readonly want: string,
  ) {
    super('BAD_OPTION', `${option}: got ${givenValue(got)}, want ${want}`)
  }
}

function givenValue(got: unknown): string {
  if (typeof got === 'string') return `'${excerpt(got)}'`
  return typeof got === 'object' && got !== null ? shown(got) : String(got)
}

/** What callers gave may have megabytes; what people read of it must not. */
function excerpt(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)}…` : text
}

export class TokenError extends MoefluxError {
  constructor(
    readonly token: unknown,
    readonly vocabSize: number,
  ) {
    super('BAD_TOKEN', `token ${String(token)} is outside the vocabulary of ${vocabSize}`)
  }
}

export class ContextLimitError extends MoefluxError {
  /** `wanted` tells apart what was asked for, where it is known before anything is evaluated. */
  constructor(
    readonly position: number,
    readonly limit: number,
    readonly wanted: WantedTokens | null = null,
  ) {
    super(
      'CONTEXT_LIMIT',
      wanted === null
        ? `position ${position} is past the context limit of ${limit} tokens`
        : `${tooLong(wanted, limit)} for the context limit of ${limit} tokens`,
    )
  }
}

/** 'the prompt has 4000 tokens and the answer may take 200, too long by 104'. */
function tooLong({ promptTokens, answerTokens, isAtLeast }: WantedTokens, limit: number): string {
  const least = isAtLeast ? 'at least ' : ''
  const answer = answerTokens > 1 ? ` and the answer may take ${answerTokens}` : ''
  return `the prompt has ${least}${promptTokens} tokens${answer}, too long by ${least}${promptTokens + answerTokens - limit}`
}

export interface WantedTokens {
  readonly promptTokens: number
  readonly answerTokens: number
  /** The prompt is so long that nobody counted to its end. */
  readonly isAtLeast?: boolean
}

export class PositionError extends MoefluxError {
  constructor(
    readonly position: unknown,
    readonly want: string,
  ) {
    super('BAD_POSITION', `position ${String(position)}: want ${want}`)
  }
}

export class NoCheckpointError extends MoefluxError {
  constructor(
    readonly position: number,
    readonly available: readonly number[],
  ) {
    super('NO_CHECKPOINT', `no checkpoint at ${position}; there are: ${available.join(', ') || 'none'}`)
  }
}

export class TokensUnknownError extends MoefluxError {
  constructor(
    readonly position: number,
    readonly knownFrom: number,
  ) {
    super(
      'TOKENS_UNKNOWN',
      `cannot replay to ${position}: the tokens before ${knownFrom} came with a snapshot and are unknown`,
    )
  }
}

/** Where a computation stopped being finite, as far as that is known. */
export interface NonFinitePlace {
  readonly position: number // of the first token that it happened to
  readonly layer: number | null // null: before or after the layers
  readonly experts: readonly number[] // of the layer: the one, or those among which it is; none where it is elsewhere
  readonly detail: string // where in words, and what was found there
}

/**
 * What the model computed is NaN or infinite: its weights are damaged, on the disk or on their way into memory, or the
 * machine computes wrongly. Nothing of the step is kept: the context is at its last token boundary and stays usable.
 */
export class NonFiniteError extends MoefluxError {
  readonly position: number | null
  readonly layer: number | null
  readonly experts: readonly number[]

  constructor(place: NonFinitePlace | null = null) {
    const where = place === null ? '' : `, first at token ${place.position} in ${place.detail}`
    super('NON_FINITE_OUTPUT', `the engine computed values that are not finite${where}`)
    this.position = place?.position ?? null
    this.layer = place?.layer ?? null
    this.experts = place?.experts ?? []
  }
}

export class ClosedError extends MoefluxError {
  constructor(readonly what: string) {
    super('CLOSED', `the ${what} is closed`)
  }
}

export type SnapshotErrorCode =
  | 'BadMagic'
  | 'BadVersion'
  | 'ShapeMismatch'
  | 'NegativeLength'
  | 'LengthOverflow'
  | 'LengthsDiffer'
  | 'Truncated'
  | 'TrailingBytes'
  | 'NotFinite'
  | 'BadEnvelope'
  | 'BadChecksum'
  | 'OtherModel'
  | 'TooLarge'

/** A snapshot that was refused; the state is exactly as it was. `details` carries field, layer, got, want, need. */
export class SnapshotError extends MoefluxError {
  declare readonly code: SnapshotErrorCode

  constructor(
    code: SnapshotErrorCode,
    message: string,
    readonly details: Readonly<Record<string, number | string>> = {},
  ) {
    super(code, `snapshot: ${message}`)
  }
}

// --- machines ------------------------------------------------------------------------------------------------------

/** The asked-for backend cannot run here. */
export class BackendUnavailableError extends MoefluxError {
  /** The machine has nothing for it to run on, so that doing without it is no news. */
  readonly absent: boolean

  constructor(
    readonly backend: string,
    detail: string,
    options: { cause?: unknown; absent?: boolean } = {},
  ) {
    super('BACKEND_UNAVAILABLE', `backend ${backend}: ${detail}`, { cause: options.cause })
    this.absent = options.absent ?? false
  }
}

/** The GPU device went away or a worker died; the model must be opened again. */
export class DeviceLostError extends MoefluxError {
  constructor(
    readonly backend: string,
    detail: string,
    options?: { cause?: unknown },
  ) {
    super('DEVICE_LOST', `backend ${backend}: ${detail}`, options)
  }
}

export class OutOfMemoryError extends MoefluxError {
  constructor(
    readonly what: string,
    readonly wanted: number,
    detail: string,
    options?: { cause?: unknown },
  ) {
    super('OUT_OF_MEMORY', `${what}: ${detail} (${wanted} bytes wanted)`, options)
  }
}

// --- text ----------------------------------------------------------------------------------------------------------

export class TokenizerError extends MoefluxError {
  constructor(detail: string, options?: { cause?: unknown }) {
    super('TOKENIZER', detail, options)
  }
}

/** The chat template refused the messages, is broken, or ran past its budget. */
export class TemplateError extends MoefluxError {
  constructor(detail: string, options?: { cause?: unknown }) {
    super('TEMPLATE', detail, options)
  }
}

/** A message, content part or tool that cannot be put into a prompt. `path` says which: `messages[2].content[0]`. */
export class MessageError extends MoefluxError {
  constructor(
    readonly path: string,
    detail: string,
  ) {
    super('BAD_MESSAGE', `${path}: ${detail}`)
  }
}

/** No token can be chosen: every logit is NaN or -Infinity, or a grammar allows nothing. */
export class SamplingError extends MoefluxError {
  constructor(detail: string) {
    super('SAMPLING', detail)
  }
}

// --- command line --------------------------------------------------------------------------------------------------

/** Arguments that do not go together or are missing; the command ends with exit code 2. */
export class UsageError extends MoefluxError {
  constructor(message: string) {
    super('BAD_USAGE', message)
  }
}

/** A JSON schema that constrained decoding cannot guarantee. Names the keyword and where it stands. */
export class UnsupportedSchemaError extends MoefluxError {
  constructor(
    readonly keyword: string,
    readonly path: string,
    readonly detail?: string,
  ) {
    const place = path.length > 300 ? `${path.slice(0, 100)} … ${path.slice(-190)}` : path
    super(
      'UNSUPPORTED_SCHEMA',
      `JSON schema at ${place}: ${keyword} is not supported${detail === undefined ? '' : `: ${detail}`}`,
    )
  }
}

/** A grammar that does not parse, is too large, or can be read in more ways than there is time for. */
export class GrammarError extends MoefluxError {
  constructor(detail: string, options?: { cause?: unknown }) {
    super('GRAMMAR', detail, options)
  }
}

// --- a server of model files ---------------------------------------------------------------------------------------

export type FetchErrorCode =
  | 'UNREACHABLE' // no answer, or it broke off, after all retries
  | 'NO_RANGES' // answers a part of a file with the whole
  | 'FILE_CHANGED' // not the file that it was when the model was opened
  | 'SHORT_BODY' // other bytes than it promised
  | 'HTTP_STATUS' // refuses: see `status`

/** A file of a model could not be had from its server. The same call works once the server does. */
export class FetchError extends MoefluxError {
  declare readonly code: FetchErrorCode
  readonly status: number | null

  constructor(
    code: FetchErrorCode,
    readonly url: string,
    detail: string,
    options: { status?: number; cause?: unknown } = {},
  ) {
    super(code, `${url}: ${detail}`, { cause: options.cause })
    this.status = options.status ?? null
  }
}

// --- downloads -----------------------------------------------------------------------------------------------------

/** A hub that refuses, sends something else than it promised, or cannot be reached. */
export class HubError extends MoefluxError {
  readonly status: number | null

  constructor(
    readonly id: string,
    detail: string,
    options: { status?: number; cause?: unknown } = {},
  ) {
    super('HUB', `${id}: ${detail}`, options)
    this.status = options.status ?? null
  }
}
