// What a server is told of models beyond those that it has in memory: how large they are, how they would run here, which
// others there are and how to bring them. Who starts the server knows; the server does not.
import type { ModelConfig } from '../../../index.js'
import type { ModelOffer } from '../loadedModel.js'
import type { LoadHooks } from '../modelPool.js'

/** How a model would run on this machine, by the plan of `inspect`. */
export interface ModelFit {
  readonly fits: 'everything' | 'streaming' | 'no'
  readonly tokensPerSecond: number // at best
  readonly leastMemory: number
}

export interface ModelAbout {
  readonly bytes: number | null // on the disk
  readonly fit: ModelFit | null
  readonly config?: ModelConfig // where it can be read
}

/** A model that can be pulled. */
export interface KnownModel extends ModelAbout {
  readonly name: string // short
  readonly title: string
  readonly hub: string
  readonly unfinishedBytes: number // that are here already
  readonly diskBytes: number // that it still takes, at least
}

/** What a pull would take, asked of the hub. */
export interface PullForecast extends ModelAbout {
  readonly name: string // on the hub
  readonly downloadBytes: number // still to come
  readonly diskBytes: number // that must be free, until it is packed
}

export interface ModelHub {
  /** Of a model that is offered; null where nothing is known. */
  about(id: string): Promise<ModelAbout | null>
  /** Well-known ones that are not here. */
  known(): Promise<readonly KnownModel[]>
  machine(): Promise<{ readonly freeMemory: number; readonly totalMemory: number; readonly freeDisk: number | null }>
  /** Whether clients may have models brought, which costs the operator's disk and line. */
  readonly mayPull: boolean
  forecast(name: string, signal: AbortSignal): Promise<PullForecast>
  /** Brings it and says how it is opened. What was brought stays when it is stopped. */
  pull(name: string, hooks: LoadHooks): Promise<ModelOffer>
}
