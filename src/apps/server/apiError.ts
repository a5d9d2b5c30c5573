// What a request may be refused with, before it takes the shape of either API: a status, a kind, a message, and where
// it applies the parameter. Errors of the library are translated here, in one place, so that a bad request is never
// answered with a 500.
import {
  ClosedError,
  ContextLimitError,
  GrammarError,
  MessageError,
  MoefluxError,
  OptionError,
  OutOfMemoryError,
  SamplingError,
  TemplateError,
  TokenError,
  TokenizerError,
  UnsupportedSchemaError,
} from '../../base/errors.js'

export type ApiErrorKind =
  | 'invalid_request'
  | 'authentication'
  | 'permission'
  | 'not_found'
  | 'too_large'
  | 'rate_limit'
  | 'timeout'
  | 'server'
  | 'overloaded'

const STATUS: Record<ApiErrorKind, number> = {
  invalid_request: 400,
  authentication: 401,
  permission: 403,
  not_found: 404,
  too_large: 413,
  rate_limit: 429,
  timeout: 408,
  server: 500,
  overloaded: 503,
}

export class ApiError extends Error {
  readonly status: number

  constructor(
    readonly kind: ApiErrorKind,
    message: string,
    readonly details: {
      readonly param?: string
      readonly code?: string
      readonly status?: number
      readonly retryAfterSeconds?: number
      /** Where another API would say it in its own words. */
      readonly anthropicMessage?: string
    } = {},
  ) {
    super(message)
    this.status = details.status ?? STATUS[kind]
  }
}

/** An answer that was cancelled because nobody waits for it; never seen by a client. */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError'
}

/** Neither the client's mistake nor its leaving: something is broken here, or too small. */
export function isOwnFault(error: unknown): boolean {
  return !isAbort(error) && (toApiError(error).kind === 'server' || error instanceof OutOfMemoryError)
}

/** `answer`, which first reports the server's own faults to the operator: for errors in streams. */
export function reportingFaults<T>(
  report: (error: unknown) => void,
  answer: (error: unknown) => T,
): (error: unknown) => T {
  return error => {
    if (isOwnFault(error)) report(error)
    return answer(error)
  }
}

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof ContextLimitError) return contextError(error)
  if (error instanceof UnsupportedSchemaError) {
    return new ApiError('invalid_request', error.message, { code: 'unsupported_schema' })
  }
  if (error instanceof OptionError) {
    if (/prefill$/i.test(error.option)) return begunError(error)
    const param = error.option.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`) // as the APIs spell it
    return new ApiError('invalid_request', error.message.replace(error.option, param), { param })
  }
  if (error instanceof MessageError) {
    return new ApiError('invalid_request', error.message, { param: error.path.replace(/[.[].*/, '') })
  }
  if (
    error instanceof GrammarError ||
    error instanceof TemplateError ||
    error instanceof TokenError ||
    error instanceof SamplingError
  ) {
    return new ApiError('invalid_request', error.message, { code: error.code.toLowerCase() })
  }
  if (error instanceof TokenizerError) {
    return new ApiError('invalid_request', withoutFolders(error), { status: 501, code: 'no_tokenizer' })
  }
  if (error instanceof ClosedError) return stoppingError()
  if (error instanceof OutOfMemoryError) return memoryError(error)
  if (error instanceof MoefluxError) {
    return new ApiError('server', withoutFolders(error), { code: error.code.toLowerCase() })
  }
  if (isAbort(error)) return new ApiError('server', 'the client left', { status: 499 })
  return new ApiError('server', 'internal error')
}

/**
 * What an error says, with files by their names alone: where things lie on the server's disk is for its log, not for
 * clients.
 */
export function withoutFolders(error: MoefluxError): string {
  let text = error.message
  // Paths that the error carries are known to the letter, also with spaces in them.
  for (const value of Object.values(error)) {
    if (typeof value === 'string' && ABSOLUTE.test(value)) text = text.replaceAll(value, lastName(value))
  }
  return text.replace(PATH_IN_TEXT, path => lastName(path))
}

const ABSOLUTE = /^(?:file:\/\/)?\/|^[A-Za-z]:[\\/]|^\\\\/
const PATH_IN_TEXT = /(?<![\w.:/#~-])(?:(?:file:\/\/)?\/(?:[^\s/'"`:,()]+\/)+|[A-Za-z]:[\\/])[^\s'"`:,()]*/g

function lastName(path: string): string {
  return path.replace(/[\\/]+$/, '').replace(/^.*[\\/]/, '') || 'a folder'
}

/** Clients begin an answer by a last message of the assistant's. */
function begunError({ want }: OptionError): ApiError {
  const wanted = want.replace('a thinkingPrefill', 'its thought in that message')
  const message = `messages: the last one begins the answer, which wants ${wanted}`
  return new ApiError('invalid_request', message, { param: 'messages' })
}

export function stoppingError(): ApiError {
  return new ApiError('overloaded', 'the server is shutting down')
}

/** Kept states have made room already; what is left is taken by answers, and comes back when they end. */
function memoryError(error: OutOfMemoryError): ApiError {
  const message = `there is no memory left beside the answers that are being made: ${withoutFolders(error)}`
  return new ApiError('overloaded', message, { code: 'out_of_memory', retryAfterSeconds: 5 })
}

function contextError({ wanted, limit, message }: ContextLimitError): ApiError {
  const details = { code: 'context_length_exceeded', param: 'messages' }
  if (wanted === null) return new ApiError('invalid_request', message, details)
  const { promptTokens: prompt, answerTokens: answer } = wanted
  const count = wanted.isAtLeast ? `at least ${prompt}` : String(prompt)
  const maximum = `This model's maximum context length is ${limit} tokens.`
  // A prompt that fills the context is refused before anybody looks at how long the answer may get.
  if (prompt >= limit) {
    return new ApiError(
      'invalid_request',
      `${maximum} However, the prompt has ${count} tokens, which leaves none for the answer.`,
      { ...details, anthropicMessage: `prompt is too long: ${count} tokens > ${limit} maximum` },
    )
  }
  const sizes = `${prompt} in the prompt, ${answer} for the answer`
  return new ApiError('invalid_request', `${maximum} However, you requested ${prompt + answer} tokens (${sizes}).`, {
    ...details,
    anthropicMessage: `input length and \`max_tokens\` exceed context limit: ${prompt} + ${answer} > ${limit}, decrease input length or \`max_tokens\` and try again`,
  })
}
