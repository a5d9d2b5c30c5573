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
  SamplingError,
  TemplateError,
  TokenError,
  UnsupportedSchemaError,
} from '../errors.js'

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
    readonly details: { param?: string; code?: string; status?: number; retryAfterSeconds?: number } = {},
  ) {
    super(message)
    this.status = details.status ?? STATUS[kind]
  }
}

/** An answer that was cancelled because nobody waits for it; never seen by a client. */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === 'AbortError' || error.name === 'TimeoutError')
}

export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof ContextLimitError) {
    return new ApiError('invalid_request', error.message, { code: 'context_length_exceeded', param: 'messages' })
  }
  if (error instanceof UnsupportedSchemaError) {
    return new ApiError('invalid_request', error.message, { code: 'unsupported_schema', param: 'response_format' })
  }
  if (error instanceof OptionError) return new ApiError('invalid_request', error.message, { param: error.option })
  if (error instanceof MessageError) return new ApiError('invalid_request', error.message, { param: 'messages' })
  if (
    error instanceof GrammarError ||
    error instanceof TemplateError ||
    error instanceof TokenError ||
    error instanceof SamplingError
  ) {
    return new ApiError('invalid_request', error.message, { code: error.code.toLowerCase() })
  }
  if (error instanceof ClosedError) return new ApiError('overloaded', 'the server is shutting down')
  if (error instanceof MoefluxError) return new ApiError('server', error.message, { code: error.code.toLowerCase() })
  return new ApiError('server', 'internal error')
}
