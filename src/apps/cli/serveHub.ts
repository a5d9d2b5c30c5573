// What `moeflux serve` tells its clients of models: those of the store, well-known ones, and how to bring them.
import { listModels, pullModel } from '../../index.js'
import {
  type Estimate,
  fourBitBytes,
  freeSpace,
  locateNamed,
  planPull,
  presets,
  storeRoot,
  WELL_KNOWN_MODELS,
} from '../../internal.js'
import type {
  KnownModel,
  LoadHooks,
  ModelAbout,
  ModelFit,
  ModelHub,
  ModelOffer,
  PullForecast,
} from '../server/serve.js'
import { thisMachine } from './machine.js'
import { type PackedBytes, readPackedBytes } from './packedBytes.js'
import { estimateHere, forecastPull } from './pullForecast.js'

export interface ServeHubOptions {
  /** Where the offered models are, by the names that clients know. */
  readonly places: ReadonlyMap<string, string>
  readonly mayPull: boolean
  /** How a model of the store is opened. */
  readonly offer: (name: string, place: string) => Promise<ModelOffer>
  readonly onNotice: (line: string) => void
}

export class ServeHub implements ModelHub {
  readonly mayPull: boolean
  private readonly places: Map<string, string>
  private readonly packed = new Map<string, Promise<PackedBytes | null>>()

  constructor(private readonly options: ServeHubOptions) {
    this.mayPull = options.mayPull
    this.places = new Map(options.places)
  }

  async about(id: string): Promise<ModelAbout | null> {
    const place = this.places.get(id)
    if (place === undefined) return null
    // What is not packed, or lies elsewhere, tells nothing before it is opened.
    const reading = this.packed.get(place) ?? readPackedBytes(place).catch(() => null)
    this.packed.set(place, reading)
    const found = await reading
    if (found === null) return null
    const { config, bytes } = found
    return { bytes: bytes.allExperts + bytes.resident, fit: fitOf(estimateHere(config, bytes)), config }
  }

  async known(): Promise<readonly KnownModel[]> {
    const stored = await listModels()
    const missing = WELL_KNOWN_MODELS.filter(
      ({ hub }) => !stored.some(({ name, state }) => name === hub && state === 'ready'),
    )
    return missing.map(({ names, title, hub, preset }) => {
      const unfinishedBytes = stored.find(({ name }) => name === hub)?.bytes ?? 0
      const { config } = presets[preset]
      const sizes = fourBitBytes(config)
      const bytes = sizes.allExperts + sizes.resident
      const diskBytes = Math.max(0, bytes - unfinishedBytes)
      return { name: names[0], title, hub, unfinishedBytes, bytes, diskBytes, fit: fitOf(estimateHere(config, sizes)) }
    })
  }

  async machine() {
    const { freeMemory, totalMemory } = thisMachine()
    return { freeMemory, totalMemory, freeDisk: await freeSpace(storeRoot()) }
  }

  async forecast(name: string, signal: AbortSignal): Promise<PullForecast> {
    const located = await locateNamed(name)
    if (located.path !== null) return await this.forecastStored(located.stored?.name ?? name, located.path)
    const plan = await planPull(located.hub ?? name, { signal })
    const found = await forecastPull(plan, located.unfinished?.bytes ?? 0, signal)
    const { leftBytes: downloadBytes, neededBytes: diskBytes, size, estimate } = found
    return { name: plan.name, downloadBytes, diskBytes, bytes: size.packedBytes, fit: fitOf(estimate) }
  }

  private async forecastStored(name: string, path: string): Promise<PullForecast> {
    const { config, bytes } = await readPackedBytes(path)
    const fit = fitOf(estimateHere(config, bytes))
    return { name, downloadBytes: 0, diskBytes: 0, bytes: bytes.allExperts + bytes.resident, fit }
  }

  async pull(name: string, { signal, onProgress }: LoadHooks): Promise<ModelOffer> {
    const { onNotice, offer } = this.options
    const located = await locateNamed(name)
    if (located.path !== null) {
      const stored = located.stored?.name ?? name
      this.places.set(stored, located.path)
      return await offer(stored, located.path)
    }
    const plan = await planPull(located.hub ?? name, { signal })
    const { folder, metadata } = await pullModel(plan, { signal, onProgress, onNotice })
    this.places.set(metadata.model, folder)
    return await offer(metadata.model, folder)
  }
}

function fitOf({ fits, tokensPerSecond, leastMemory }: Estimate): ModelFit {
  return { fits, tokensPerSecond, leastMemory }
}
