// Where answers can come from: the server that the page came from, and models that can run in this tab. Knows what is
// there, what is chosen, and what loading one has come to.
import { computed, type ReadonlySignal, type Signal, signal } from '@preact/signals'
import type { ModelEntry } from '#moeflux/apps/browser/page.js'
import { type ChatEngine, EngineFailure } from '../engines/chatEngine.js'
import { type Hub, readHub } from '../engines/hubClient.js'
import { ask, ServerEngine, type ServerKey } from '../engines/serverEngine.js'
import type { TabEngine, TabProgress } from '../engines/tabEngine.js'
import type { Failure } from './conversation.js'
import type { PageStorage } from './pageStorage.js'
import { ServerModels } from './serverModels.js'
import { type ServerState, ServerWatch } from './serverWatch.js'
import type { Settings } from './settings.js'

export type Place = 'server' | 'tab'

export type TabState =
  | { readonly status: 'empty' }
  | { readonly status: 'loading'; readonly entry: ModelEntry; readonly progress: TabProgress | null }
  | { readonly status: 'ready'; readonly entry: ModelEntry; readonly engine: TabEngine }
  | { readonly status: 'failed'; readonly entry: ModelEntry; readonly failure: Failure }

const PLACE_KEY = 'moeflux.place'
const MODEL_KEY = 'moeflux.model' // of the server's, the one that was chosen last
const INDEX_KEY = 'moeflux.models' // what the host offered last, for visits without a network
const LOADED_KEY = 'moeflux.tabModel' // what ran in the tab last
const NO_SERVER_KEY = 'moeflux.noServer' // the host is known to be no moeflux server

export class Engines {
  readonly server: Signal<ServerState> = signal({ status: 'connecting' })
  readonly tab: Signal<TabState> = signal({ status: 'empty' })
  readonly models = signal<readonly ModelEntry[]>([])
  readonly place = signal<Place>('server')
  readonly active: ReadonlySignal<ChatEngine | null> = computed(() => {
    const { value: server } = this.server
    const { value: tab } = this.tab
    if (this.place.value === 'tab') return tab.status === 'ready' ? tab.engine : null
    return server.status === 'ready' || server.status === 'lost' ? server.engine : null
  })
  readonly serverModels: ServerModels
  private loading: AbortController | null = null
  private readonly watch = new ServerWatch({
    isWanted: () => this.place.value === 'server',
    state: () => this.server.value,
    onGone: () => this.lose(),
    connect: () => this.connect(),
  })

  constructor(
    private readonly key: ServerKey,
    private readonly storage: PageStorage,
    private readonly tabBackend: () => Settings['tabBackend'],
    private readonly onNotice: (line: string) => void,
  ) {
    this.serverModels = new ServerModels(key, hub => this.followModels(hub))
  }

  async start(): Promise<void> {
    this.place.value = this.storage.getItem(PLACE_KEY) === 'tab' ? 'tab' : 'server'
    await Promise.all([this.connect(), this.listModels()])
    if (this.server.value.status === 'none') this.place.value = 'tab'
    else this.watch.start()
    if (this.models.value.length === 0) this.place.value = 'server'
    const last = this.models.value.find(({ path }) => path === this.storage.getItem(LOADED_KEY))
    if (this.place.value === 'tab' && last) await this.load(last)
  }

  /** Looks for the server, again where it was gone. */
  async connect(): Promise<void> {
    const { value: before } = this.server
    try {
      const found = await this.findEngine()
      // The same model goes on where it was: whoever watches it keeps what was seen.
      const engine = before.status === 'lost' && found?.equals(before.engine) ? before.engine : found
      this.server.value = engine === null ? { status: 'none' } : { status: 'ready', engine }
      if (engine === null) this.storage.setItem(NO_SERVER_KEY, 'yes')
      else this.storage.removeItem(NO_SERVER_KEY)
    } catch (error) {
      const { kind, message } = asFailure(error)
      if (kind === 'unreachable' && this.storage.getItem(NO_SERVER_KEY) !== null) {
        this.server.value = { status: 'none' }
        return
      }
      const failure = { kind, message }
      this.server.value =
        before.status === 'lost' && kind === 'unreachable' ? { ...before, failure } : { status: 'failed', failure }
    }
  }

  /** The model that was chosen last, where the server still has it. Null: there is no server here. */
  private async findEngine(): Promise<ServerEngine | null> {
    const hub = await readHub(this.key)
    if (hub === null || hub.models.length === 0) return null
    this.serverModels.hub.value = hub
    const chosen = this.storage.getItem(MODEL_KEY)
    const model =
      hub.models.find(({ id }) => id === chosen) ?? hub.models.find(({ state }) => state === 'loaded') ?? hub.models[0]
    return await ServerEngine.connect(this.key, model.id, {
      onLost: () => void this.watch.look(),
      onLoaded: () => void this.connect(),
    })
  }

  /** Answers come from this model of the server from now on; it is loaded meanwhile. */
  async useServerModel(id: string): Promise<void> {
    this.storage.setItem(MODEL_KEY, id)
    this.choose('server')
    await this.connect()
    await this.serverModels.load(id)
  }

  /** The model in use has been loaded: its engine can be looked into. */
  private followModels({ models }: Hub): void {
    const { value } = this.server
    if (value.status !== 'ready' || value.engine.shape.isLoaded) return
    if (models.some(({ id, state }) => id === value.engine.shape.model && state === 'loaded')) void this.connect()
  }

  /** The server went away, perhaps for a moment. */
  private lose(): void {
    const { value } = this.server
    if (value.status !== 'ready') return
    const failure: Failure = {
      kind: 'unreachable',
      message: 'The server does not answer. Is moeflux serve still running?',
    }
    this.server.value = { status: 'lost', engine: value.engine, failure }
  }

  async useKey(key: string): Promise<void> {
    this.key.set(key)
    await Promise.all([this.connect(), this.listModels()])
  }

  choose(place: Place): void {
    this.place.value = place
    this.storage.setItem(PLACE_KEY, place)
  }

  /** Loads a model into this tab and answers with it from then on. */
  async load(entry: ModelEntry): Promise<void> {
    await this.unload()
    const loading = new AbortController()
    this.loading = loading
    this.choose('tab')
    this.tab.value = { status: 'loading', entry, progress: null }
    try {
      const { TabEngine } = await import('../engines/tabEngine.js')
      const engine = await TabEngine.load(entry, {
        backend: this.tabBackend(),
        headers: this.key.headers,
        signal: loading.signal,
        onProgress: progress => {
          if (this.loading === loading) this.tab.value = { status: 'loading', entry, progress }
        },
        onNotice: this.onNotice,
      })
      if (loading.signal.aborted) return await engine.close()
      this.tab.value = { status: 'ready', entry, engine }
      this.storage.setItem(LOADED_KEY, entry.path)
    } catch (error) {
      if (loading.signal.aborted) return
      const { kind, message } = asFailure(error)
      this.tab.value = { status: 'failed', entry, failure: { kind, message } }
    } finally {
      if (this.loading === loading) this.loading = null
    }
  }

  /** Stops loading, or takes the model out of memory. What is stored on the device stays. */
  async unload(): Promise<void> {
    this.loading?.abort()
    this.loading = null
    const { value } = this.tab
    this.tab.value = { status: 'empty' }
    this.storage.removeItem(LOADED_KEY)
    if (value.status === 'ready') await value.engine.close()
  }

  private async listModels(): Promise<void> {
    try {
      const response = await ask('models/index.json', { headers: this.key.headers })
      if (response.ok && response.headers.get('content-type')?.includes('json')) {
        const body = await response.json()
        this.models.value = readEntries(body)
        this.storage.setItem(INDEX_KEY, JSON.stringify(body))
      }
    } catch {
      this.models.value = this.rememberedModels()
    }
  }

  private rememberedModels(): ModelEntry[] {
    try {
      return readEntries(JSON.parse(this.storage.getItem(INDEX_KEY) ?? '{}'))
    } catch {
      return []
    }
  }
}

function readEntries(body: unknown): ModelEntry[] {
  const list = (body as { models?: unknown })?.models
  if (!Array.isArray(list)) return []
  return list
    .filter(entry => typeof entry?.name === 'string' && typeof entry?.path === 'string')
    .map(entry => ({
      name: entry.name,
      path: entry.path,
      residentBytes: Number(entry.residentBytes) || 0,
      expertBytes: Number(entry.expertBytes) || 0,
    }))
}

function asFailure(error: unknown): Failure {
  if (error instanceof EngineFailure) return error
  return { kind: 'other', message: error instanceof Error ? error.message : String(error) }
}
