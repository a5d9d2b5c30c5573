// The models of the server while somebody looks at them: asked for again and again, oftener while one is loaded or pulled.
import { signal } from '@preact/signals'
import { askHub, type Forecast, forecast, type Hub, readHub } from '../engines/hubClient.js'
import type { ServerKey } from '../engines/serverEngine.js'

const MOVING_MS = 700
const RESTING_MS = 4000

interface Pace {
  readonly at: number // milliseconds
  readonly loaded: number
}

export class ServerModels {
  readonly hub = signal<Hub | null>(null)
  private readonly paces = new Map<string, Pace>() // where pulls were when they were first seen
  private timer: ReturnType<typeof setTimeout> | undefined
  private watchers = 0

  constructor(
    private readonly key: ServerKey,
    /** Called after each look. */
    private readonly onLook: (hub: Hub) => void,
  ) {}

  /** Looks until the returned function is called. */
  watch(): () => void {
    this.watchers++
    void this.look()
    return () => {
      this.watchers--
    }
  }

  async load(id: string): Promise<void> {
    await askHub(this.key, 'load', id)
    await this.look()
  }

  async pull(name: string): Promise<void> {
    this.paces.delete(name)
    await askHub(this.key, 'pull', name)
    await this.look()
  }

  async stop(name: string): Promise<void> {
    await askHub(this.key, 'stop', name)
    await this.look()
  }

  async forecast(name: string): Promise<Forecast> {
    return await forecast(this.key, name)
  }

  /** Bytes per second of a pull since it was seen first; null where that is not known yet. */
  rate(name: string): number | null {
    const progress = this.hub.value?.pulls.find(pull => pull.name === name)?.progress
    const before = this.paces.get(name)
    if (!progress || before === undefined || progress.loaded <= before.loaded) return null
    return (progress.loaded - before.loaded) / ((performance.now() - before.at) / 1000)
  }

  private async look(): Promise<void> {
    clearTimeout(this.timer)
    // A server that is gone is told elsewhere; here things stay as they were.
    const hub = await readHub(this.key).catch(() => null)
    if (hub !== null) {
      this.hub.value = hub
      for (const { name, progress, state } of hub.pulls) {
        if (state !== 'running') this.paces.delete(name)
        else if (progress && !this.paces.has(name))
          this.paces.set(name, { at: performance.now(), loaded: progress.loaded })
      }
      this.onLook(hub)
    }
    clearTimeout(this.timer)
    if (this.watchers === 0) return
    const isMoving =
      hub?.pulls.some(({ state }) => state === 'running') || hub?.models.some(({ state }) => state === 'loading')
    this.timer = setTimeout(() => void this.look(), isMoving ? MOVING_MS : RESTING_MS)
  }
}
