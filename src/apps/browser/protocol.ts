// What the page and its engine worker say to each other. Plain data only; errors travel as their class, code and fields
// and are of the same class on the other side.
import type { Progress } from '../../backends/backend.js'
import * as errors from '../../base/errors.js'
import type { Embedding, EmbedOptions } from '../../chat/embedding.js'
import type { SessionEvent } from '../../chat/events.js'
import type { SessionOptions } from '../../chat/session.js'
import type { EngineFrame } from '../../engine/engineFrame.js'
import type { EngineStats } from '../../engine/model.js'
import type { OpenModelOptions } from '../../engine/openEngine.js'
import type { ExpertTraffic } from '../../files/pieces/recordSource.js'
import type { ModelConfig } from '../../model/config.js'

/** Options of `openModel` that can be posted. */
export interface EngineOptions
  extends Pick<
    OpenModelOptions,
    | 'backend'
    | 'threads'
    | 'expertMemory'
    | 'gpuMemory'
    | 'precision'
    | 'expertsPerToken'
    | 'expertBits'
    | 'contextLength'
    | 'prefetch'
    | 'checksums'
    | 'drafts'
  > {
  /** 'opfs' (default): what was fetched is kept in the browser's storage; 'memory': nothing outlives the page. */
  readonly cache?: 'opfs' | 'memory'
  /** Sent with every request for the model's files: a key that the server asks for. */
  readonly headers?: Readonly<Record<string, string>>
}

/** What is known of an opened model. */
export interface ModelInfo {
  readonly name: string
  readonly url: string
  readonly config: ModelConfig
  readonly backend: 'reference' | 'wasm' | 'webgpu'
  /** The backend in words: threads, precision, device. */
  readonly backendDescription: string
  readonly vocabSize: number
  readonly contextLength: number
  readonly expertsPerToken: number
  readonly eosTokenIds: readonly number[]
  readonly fingerprint: string
  /** Without one the model answers nothing. */
  readonly hasTokenizer: boolean
  readonly expertBytes: number // of one expert
  readonly residentBytes: number // of the part that every token uses
}

/** The counters of the engine, where its experts came from, and what was fetched in all. */
export type BrowserStats = EngineStats &
  ExpertTraffic & {
    readonly networkRequests: number // for any file of the model
    readonly fetchedBytes: number // of any file of the model
  }

export interface StorageReport {
  readonly cache: 'opfs' | 'read-only' | 'memory'
  readonly cachedBytes: number // of this model
  readonly expertsCached: number
  readonly experts: number // of the model
  readonly usage: number | null // of the whole origin, where the browser tells
  readonly quota: number | null
  /** The browser has promised not to clear it by itself. */
  readonly persisted: boolean
}

/** Texts, or tokens of texts. */
export type EmbedInputs = readonly (string | readonly number[])[]

export interface Calls {
  open(url: string, options: EngineOptions): ModelInfo
  stats(): BrowserStats
  storage(): StorageReport
  clearCache(): void
  createSession(options: Omit<SessionOptions, 'store' | 'onLog' | 'onWarning'>): number
  closeSession(session: number): void
  countTokens(text: string): number
  countPrompt(session: number, options: object): number
  /** Session null: the one that all share. */
  embed(session: number | null, inputs: EmbedInputs, options: Omit<EmbedOptions, 'signal'>): Embedding[]
  close(): void
}

export type CallName = keyof Calls

export type ToEngine =
  | { readonly kind: 'call'; readonly id: number; readonly name: CallName; readonly args: readonly unknown[] }
  | {
      readonly kind: 'stream'
      readonly id: number
      readonly session: number | null // null: the one that all share
      readonly how: 'chat' | 'complete' | 'generate'
      readonly options: object
      readonly promptProgress: boolean
    }
  /** The page has taken so many events. */
  | { readonly kind: 'taken'; readonly id: number; readonly count: number }
  | { readonly kind: 'cancel'; readonly id: number }
  | { readonly kind: 'watch'; readonly on: boolean }

export type FromEngine =
  | { readonly kind: 'result'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'error'; readonly id: number; readonly error: PackedError }
  | { readonly kind: 'event'; readonly id: number; readonly event: SessionEvent }
  | {
      readonly kind: 'promptProgress'
      readonly id: number
      readonly done: number
      readonly total: number
      readonly cached: number
    }
  | { readonly kind: 'progress'; readonly progress: Progress }
  | { readonly kind: 'notice'; readonly line: string }
  | { readonly kind: 'frame'; readonly frame: EngineFrame }

/** Events that may be under way before the engine waits for the page. */
export const EVENT_WINDOW = 256

export interface PackedError {
  readonly name: string
  readonly message: string
  readonly stack?: string
  readonly code?: string
  readonly dom: boolean // a DOMException: an abort, a refusal of the browser's
  readonly fields: Readonly<Record<string, unknown>>
}

type ErrorClass = new (...args: never[]) => Error
const classes: readonly [string, ErrorClass][] = Object.entries(errors) as unknown as [string, ErrorClass][]

export function packError(error: unknown): PackedError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), dom: false, fields: {} }
  const { message: _, stack, name: __, cause: ___, ...rest } = error
  const fields = Object.fromEntries(Object.entries(rest).filter(([, value]) => isPlain(value)))
  // Class names do not survive a bundler; what the module exports them as does.
  const exported = classes.find(([, candidate]) => error.constructor === candidate)?.[0]
  const code = error instanceof errors.MoefluxError ? error.code : undefined
  const dom = error instanceof DOMException
  return { name: exported ?? error.name, message: error.message, stack, code, dom, fields }
}

export function unpackError({ name, message, stack, code, dom, fields }: PackedError): Error {
  const known = classes.find(([exported]) => exported === name)?.[1]
  if (dom) return new DOMException(message, name)
  if (known === undefined) return Object.assign(new Error(message), { name, stack: stack ?? '' })
  const error = Object.setPrototypeOf(new errors.MoefluxError(code ?? '', message), known.prototype) as Error
  return Object.assign(error, fields, { name, stack: stack ?? error.stack })
}

function isPlain(value: unknown): boolean {
  return value === null || typeof value !== 'object'
    ? typeof value !== 'function'
    : Array.isArray(value) || isRecord(value)
}

function isRecord(value: object): boolean {
  return Object.getPrototypeOf(value) === Object.prototype
}
