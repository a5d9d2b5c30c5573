// The server's models: those that it has, those that it could have, and what to do about them. What it says is checked.
import { ask, failureOf, type ServerKey } from './serverEngine.js'

export interface Progress {
  readonly phase: string
  readonly loaded: number
  readonly total: number
}

/** What is known of a model and of how it would run; null: not known. */
export interface ModelAbout {
  readonly bytes: number | null
  readonly fits: 'everything' | 'streaming' | 'no' | null
  readonly tokensPerSecond: number | null
  readonly leastMemory: number | null
}

export interface OfferedModel extends ModelAbout {
  readonly id: string
  readonly state: 'unloaded' | 'loading' | 'loaded' | 'unloading'
  readonly contextLength: number | null
  readonly progress: Progress | null
  readonly problem: string | null
}

export interface KnownModel extends ModelAbout {
  readonly name: string
  readonly title: string
  readonly hub: string
  readonly unfinishedBytes: number
  readonly diskBytes: number // that it still takes
}

export interface Pull {
  readonly name: string
  readonly state: 'running' | 'stopped' | 'failed'
  readonly progress: Progress | null
  readonly problem: string | null
}

export interface Hub {
  readonly models: readonly OfferedModel[]
  readonly known: readonly KnownModel[]
  readonly pulls: readonly Pull[]
  readonly canPull: boolean
  readonly freeMemory: number | null
  readonly freeDisk: number | null
}

export interface Forecast extends ModelAbout {
  readonly name: string
  readonly downloadBytes: number
  readonly diskBytes: number
}

type Fields = Record<string, unknown>

/** Null where the page came from a host that is no moeflux server. */
export async function readHub(key: ServerKey): Promise<Hub | null> {
  const response = await ask('hub', { headers: key.headers })
  if (response.status === 404 || !response.headers.get('content-type')?.includes('json')) return null
  if (!response.ok) throw await failureOf(response)
  const body = (await response.json()) as Fields
  if (!Array.isArray(body?.models)) return null
  return {
    models: listOf(body.models).map(model => ({
      id: String(model.id),
      state: oneOf(model.state, ['loaded', 'loading', 'unloading'] as const) ?? 'unloaded',
      contextLength: numberOf(model.context_length),
      progress: progressOf(model.progress),
      problem: textOf(model.problem),
      ...aboutOf(model),
    })),
    known: listOf(body.known).map(model => ({
      name: String(model.name),
      title: String(model.title),
      hub: String(model.hub),
      unfinishedBytes: numberOf(model.unfinished_bytes) ?? 0,
      diskBytes: numberOf(model.disk_bytes) ?? 0,
      ...aboutOf(model),
    })),
    pulls: listOf(body.pulls).map(pull => ({
      name: String(pull.name),
      state: oneOf(pull.state, ['running', 'stopped'] as const) ?? 'failed',
      progress: progressOf(pull.progress),
      problem: textOf(pull.problem),
    })),
    canPull: body.can_pull === true,
    freeMemory: numberOf(body.free_memory),
    freeDisk: numberOf(body.free_disk),
  }
}

export async function askHub(key: ServerKey, action: 'load' | 'pull' | 'stop' | 'forecast', model: string) {
  const response = await ask(`hub/${action}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...key.headers },
    body: JSON.stringify({ model }),
  })
  if (!response.ok) throw await failureOf(response)
  return (await response.json()) as Fields
}

export async function forecast(key: ServerKey, model: string): Promise<Forecast> {
  const body = await askHub(key, 'forecast', model)
  const downloadBytes = numberOf(body.download_bytes) ?? 0
  return {
    name: String(body.name),
    downloadBytes,
    diskBytes: numberOf(body.disk_bytes) ?? downloadBytes,
    ...aboutOf(body),
  }
}

function aboutOf(fields: Fields): ModelAbout {
  return {
    bytes: numberOf(fields.bytes),
    fits: oneOf(fields.fits, ['everything', 'streaming', 'no'] as const),
    tokensPerSecond: numberOf(fields.tokens_per_second),
    leastMemory: numberOf(fields.least_memory),
  }
}

function progressOf(value: unknown): Progress | null {
  const { phase, loaded, total } = (value ?? {}) as Fields
  return typeof phase === 'string' ? { phase, loaded: numberOf(loaded) ?? 0, total: numberOf(total) ?? 0 } : null
}

function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(each => typeof each === 'object' && each !== null) : []
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function oneOf<T extends string>(value: unknown, all: readonly T[]): T | null {
  return all.find(each => each === value) ?? null
}
