// Decides which experts are in GPU memory, and has them brought there: joins the streamer's
// decisions (streamerCore.ts: what to read, what to evict, who waits), the reader, the order of
// reads and the uploads (loader.ts). Where experts are in memory, too, ExpertTiers decides which
// are on the GPU: it names them after each step, and one at a time moves up while the GPU is at
// work. What kernels see of it is slotTable.ts. Layers are counted among those with experts.
import { ClosedError, DeviceLostError } from '../../../base/errors.js'
import { AsyncStreamer } from '../../../experts/asyncStreamer.js'
import { TierClaims } from '../../../experts/claims.js'
import { ExpertCache, type ExpertName } from '../../../experts/expertCache.js'
import type { ExpertTiers, Promotion } from '../../../experts/expertTiers.js'
import { type GuessedSlots, LayerAhead } from '../../../experts/prefetch.js'
import { noReads, type ReadTotals } from '../../../experts/readers/readCounters.js'
import type { ReadPriority } from '../../../experts/readers/readRing.js'
import { StreamerCore, type StreamerStats } from '../../../experts/streamerCore.js'
import type { PoolPlan, SlotLayout } from '../../../gpu/memory/slotLayout.js'
import { SlotPools } from '../../../gpu/memory/slotPools.js'
import type { ModelConfig } from '../../../model/config.js'
import type { ExpertReader } from './expertReader.js'
import { ExpertUploads, STAGING_BUFFERS, StagedReads } from './loader.js'
import { SlotTable } from './slotTable.js'

const FILLING = 3 // reads into empty slots at once: the thread that copies them also leads the tokens
const MOST_AHEAD = 16 // reads ahead at once: leaves staging buffers for demand

interface SlotsPlan {
  readonly config: ModelConfig
  readonly layouts: readonly SlotLayout[] // per layer; slots are of one size
  readonly pools: PoolPlan
  readonly leastSlots: number // of a pool, however little memory there is
  readonly recordBytes: number // of an expert on disk
  readonly fileNames: readonly string[] // [layers with experts], for errors
}

/** The tiers that these slots are the uppermost of. */
export interface TierLink {
  readonly tiers: ExpertTiers
  /** A place in memory may go that was kept until its bytes had gone up. */
  onFreed(): void
  /** An expert has gone up, or could not. Who had to leave for it. */
  onMoved(left: ExpertName | null): void
}

export class Residency implements GuessedSlots {
  onRead: (() => void) | null = null // an expert has arrived, or failed to
  private readonly core: StreamerCore
  private readonly stagedReads: StagedReads
  private readonly streamer: AsyncStreamer
  private readonly layerAhead: LayerAhead
  private readonly claims: TierClaims | null
  private readonly moves = new Map<number, Promotion>() // by slot: not over yet
  private stepIsDue = false

  static async create(
    device: GPUDevice,
    plan: SlotsPlan,
    buffers: readonly GPUBuffer[], // of the pools
    reader: ExpertReader,
    link: TierLink | null = null,
  ): Promise<Residency> {
    const { config, layouts, pools: poolPlan, recordBytes } = plan
    const { expertLayers, numExperts: experts } = config
    const layers = expertLayers.length
    const { stride } = layouts[0]
    const slots = poolPlan.slots * poolPlan.pools
    const cache =
      link?.tiers.gpu ??
      new ExpertCache(
        { layers, experts, slots, expertBytes: stride, policy: 'lrfu', poolOfLayer: poolPlan.poolOfLayer },
        { stagingBuffers: STAGING_BUFFERS },
      )
    const pools = new SlotPools(device, poolPlan, stride, buffers)
    const table = new SlotTable(device, { layers, experts, stride, pools: poolPlan }, pools)
    const uploads = await ExpertUploads.create(device, { stride, recordBytes }, table, cache.life)
    return new Residency(plan, reader, pools, table, cache, uploads, link)
  }

  private constructor(
    private readonly plan: SlotsPlan,
    private readonly reader: ExpertReader,
    private readonly pools: SlotPools,
    /** What kernels see of it. */
    readonly table: SlotTable,
    private readonly cache: ExpertCache,
    private readonly uploads: ExpertUploads,
    private readonly link: TierLink | null,
  ) {
    const { config, recordBytes: expertSize, fileNames } = plan
    const actions = {
      read: (layer: number, expert: number, buffer: number, priority: ReadPriority) =>
        this.fillBuffer(layer, expert, buffer, priority),
      promote: (layer: number, expert: number) => reader.promote(layer, expert),
      hide: (slot: number) => uploads.hide(slot),
      send: (buffer: number, slot: number, layer: number, expert: number) => {
        uploads.send(buffer, slot, layer * config.numExperts + expert)
      },
      flush: () => uploads.submit([]),
      ended: () => {
        this.onRead?.()
        this.layerAhead.goOn()
        this.streamer.changed()
      },
    }
    this.stagedReads = new StagedReads(cache, actions, () => this.core)
    const aheadLimit = Math.min(MOST_AHEAD, Math.max(1, cache.slots >> 2))
    this.claims = link && new TierClaims(link.tiers)
    this.stagedReads.isPaced = link !== null
    const options = { aheadLimit, expertSize, fileNames, layerNumbers: config.expertLayers }
    this.core = new StreamerCore(cache, this.stagedReads, {
      ...options,
      ...(this.claims && {
        claims: this.claims,
        onOver: (slot: number, isThere: boolean) => this.isOver(slot, isThere),
      }),
    })
    this.streamer = new AsyncStreamer(this.core)
    const { moeLayers, numExperts: experts } = config
    const layers = moeLayers.length // a prompt wants no experts of a head for drafts
    this.layerAhead = new LayerAhead(this.core, { layers, experts, most: aheadLimit })
    uploads.onFree = () => {
      this.stagedReads.beginReads()
      this.streamer.changed()
    }
    uploads.onLost = reason => this.lose(new DeviceLostError('webgpu', reason))
  }

  /** While this is on, what arrives waits for the next `submit`. */
  set gathers(on: boolean) {
    this.uploads.gathers = on
  }

  /** Submits commands that use layers before `end`, after the uploads that they may need. */
  submit(commands: readonly GPUCommandBuffer[], end: number): void {
    this.uploads.submit(commands, end)
  }

  /**
   * Gives memory back, so many bytes or what it can: the last pools have fewer slots from then on,
   * and their experts are read again when they are wanted. Whether any was given. Never while a
   * step runs.
   */
  async giveRoom(bytes: number): Promise<boolean> {
    const { stride } = this.plan.layouts[0]
    let lacking = bytes
    for (let pool = this.plan.pools.pools - 1; pool >= 0 && lacking > 0; pool--) {
      const before = this.pools.slotsOf(pool)
      const slots = Math.max(this.plan.leastSlots, before - Math.ceil(lacking / stride))
      if (slots >= before) continue
      await this.shrink(pool, slots)
      lacking -= (before - this.pools.slotsOf(pool)) * stride
    }
    return lacking < bytes
  }

  /** Which experts are in slots. */
  residency(): Uint8Array {
    return this.cache.resident.slice()
  }

  get bytes(): number {
    return this.pools.bytes
  }

  get reads(): ExpertReader['totals'] {
    return this.reader.totals
  }

  get stats(): StreamerStats {
    return this.core.stats
  }

  /** Experts that were to be read, wanted or ahead. */
  get readsAsked(): number {
    return this.core.readsAsked
  }

  /** Slots that every layer can have at once. */
  get leastSlots(): number {
    return this.pools.least
  }

  /** Moves on when a pool was replaced: commands that were recorded before must not be submitted. */
  get generation(): number {
    return this.table.generation
  }

  /** The slot of a layer's shared expert; null where it is computed apart. */
  sharedSlot(layer: number): number | null {
    return this.table.sharedSlot(layer)
  }

  /** Whether every expert of the layer is in a slot, so that no routing can miss. */
  isResident(layer: number): boolean {
    return this.table.isResident(layer)
  }

  /** Whether no routing at all can miss. */
  get isAllResident(): boolean {
    return this.table.isAllResident
  }

  /**
   * A step begins. What that means for who is where is decided when `beginStep` is called, at its
   * leisure.
   */
  tick(): void {
    if (this.link === null) this.cache.tick()
    else this.stepIsDue = true
  }

  /**
   * To be called before the step's choices are told, best while the GPU is at work: says who goes
   * up after the last step.
   */
  beginStep(): void {
    if (this.link === null || !this.stepIsDue) return
    this.stepIsDue = false
    const { tiers } = this.link
    if (this.moves.size === 0) {
      for (let next = tiers.promotion(); next !== null; next = tiers.promotion()) {
        this.moves.set(next.slot, next)
        this.core.move(next.slot)
      }
    }
    tiers.beginStep()
  }

  /** Sends one of those up who are to go; best while the GPU is at work. */
  moveUp(): void {
    if (this.moves.size > 0) this.stagedReads.beginAhead()
  }

  /** Whoever is to go up and has not begun stays where it is. Whether there were any. */
  callOffMoves(): boolean {
    return this.moves.size > 0 && this.core.callOffAhead(slot => this.moves.has(slot)) > 0
  }

  /** Whether places in memory are kept for experts that are on their way up. */
  get holdsMemory(): boolean {
    return this.moves.size > 0 || this.claims?.holdsMemory === true
  }

  /** Whether every expert that the present request wants has a slot, or had one. */
  get isServed(): boolean {
    return this.core.isServed
  }

  /** Commands have used this expert, which was in a slot when they were submitted. */
  touch(layer: number, expert: number): void {
    if (this.link !== null) this.link.tiers.usedOnGpu(layer, expert)
    else {
      const slot = this.cache.want(layer, expert)
      if (slot >= 0) this.cache.unpin(slot)
    }
  }

  /** Whether commands that are submitted next find the expert in a slot. */
  isShown(layer: number, expert: number): boolean {
    return this.table.isShown(layer * this.plan.config.numExperts + expert)
  }

  /** Brings all of a layer's wanted experts into slots at once, and keeps them there until `letGo`. */
  hold(layer: number, wanted: Iterable<number>, signal?: AbortSignal): Promise<void> {
    return this.streamer.hold(layer, wanted, signal)
  }

  /** What was held may go: the commands that use it are submitted, or nobody will use it. */
  letGo(): void {
    this.streamer.letGo()
  }

  /**
   * Brings a layer's wanted experts into slots, in waves where they are more than the slots: those
   * that are there first, while the others are read. The caller submits each wave's work before it
   * asks for the next; the table's `waveRows` then show the wave's experts alone. `ahead`:
   * meanwhile the next layer's experts are read, if it will want most of them.
   */
  async *waves(
    layer: number,
    wanted: readonly number[],
    { ahead, signal }: { readonly ahead: boolean; readonly signal?: AbortSignal },
  ): AsyncGenerator<void> {
    const layerAhead = this.layerAhead
    if (ahead && layerAhead.wantsMost(wanted.length)) layerAhead.begin(layer + 1)
    else layerAhead.end()
    for await (const slots of this.streamer.waves(layer, wanted, { signal })) {
      const wave = slots.map(slot => ({ expert: this.cache.expertOf(slot), slot }))
      this.table.showWave(layer, wave)
      yield
      layerAhead.goOn()
    }
    layerAhead.goOn()
  }

  /** Nothing more is read for coming layers: a prompt has ended, or is given up. */
  endAhead(): void {
    this.layerAhead.giveUp()
  }

  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean {
    return this.core.has(layer, expert)
  }

  /** Experts on their way into slots. */
  get reading(): number {
    return this.core.reading
  }

  /** All experts are read again when they are wanted, but for those on their way. */
  forget(): void {
    this.callOffMoves()
    this.core.forget(slot => this.uploads.hide(slot))
    this.link?.tiers.forgetMemory()
  }

  /** Begins to read an expert that may be wanted soon, unless many such reads are under way. */
  prefetch(layer: number, expert: number): void {
    if (!this.streamer.isOver) this.core.prefetch(layer, expert)
  }

  /** Whether there is a slot for every expert. */
  get holdsAll(): boolean {
    const { expertLayers, numExperts } = this.plan.config
    const layers = expertLayers.length
    return this.cache.slotsLeft >= layers * numExperts && this.plan.pools.pools === layers
  }

  /**
   * Brings every expert into its slot, behind whatever is wanted meanwhile. Ends early when closed
   * or when a read fails.
   */
  async fill(onLoaded?: (experts: number) => void): Promise<void> {
    const { expertLayers, numExperts } = this.plan.config
    const core = this.core
    const check = () => {
      if (core.aheadFailure !== null) throw core.aheadFailure
    }
    core.aheadFailure = null
    const isOver = () => this.streamer.isOver || !this.holdsAll
    for (let key = 0; key < expertLayers.length * numExperts && !isOver(); key++) {
      const layer = Math.floor(key / numExperts)
      await this.streamer.settled(() => {
        check()
        this.prefetch(layer, key % numExperts)
        return core.has(layer, key % numExperts) || isOver()
      })
      onLoaded?.(key + 1)
    }
    await this.streamer.settled(() => core.reading === 0 || this.streamer.isOver)
    check()
  }

  /**
   * Reads experts that are nowhere so far into empty slots, behind whatever is wanted meanwhile.
   * From the last on, since memory is filled from the first on. Slots of pools whose experts are
   * all in memory get some of those, whose places there go to others.
   */
  async fillEmpty({ tiers }: TierLink): Promise<void> {
    const { layers, experts } = tiers.shape
    const mayGoOn = () => {
      while (this.stagedReads.beginAhead()) {}
      return this.core.reading < FILLING || this.streamer.isOver
    }
    for (const mayBeCopy of [false, true]) {
      for (let key = layers * experts - 1; key >= 0; key--) {
        const slot = tiers.fillGpu({ layer: key % layers, expert: Math.floor(key / layers) }, mayBeCopy)
        if (slot < 0) continue
        this.core.move(slot)
        await this.streamer.settled(mayGoOn)
        if (this.streamer.isOver) return
      }
    }
    await this.streamer.settled(() => {
      mayGoOn()
      return this.core.reading === 0 || this.streamer.isOver
    })
  }

  /** The device is gone: nobody waits any longer. */
  lose(error: DeviceLostError): void {
    this.layerAhead.end()
    this.stagedReads.stop()
    this.cache.life.lose()
    this.streamer.end(error)
  }

  /** Ends when the reads that have begun have ended. */
  async close(): Promise<void> {
    this.layerAhead.end()
    this.stagedReads.stop()
    this.streamer.end(new ClosedError('model'))
    await this.reader.close()
    await this.streamer.settled(() => this.stagedReads.underWay === 0)
  }

  private isOver(slot: number, isThere: boolean): void {
    const link = this.link as TierLink
    const { tiers } = link
    const move = this.moves.get(slot)
    this.moves.delete(slot)
    if (move !== undefined) tiers.moved(move, isThere)
    else if (isThere) tiers.onGpu(slot)
    this.claims?.ended(this.cache.layerOf(slot), this.cache.expertOf(slot))
    if (move !== undefined || isThere) link.onMoved(move?.left ?? null)
    link.onFreed()
  }

  private async shrink(pool: number, slots: number): Promise<void> {
    const layers = [...this.plan.pools.poolOfLayer.keys()].filter(i => this.plan.pools.poolOfLayer[i] === pool)
    // What must be there again is read before anything is given away.
    const shared = this.table.hasShared ? await Promise.all(layers.map(layer => this.table.readShared(layer))) : []
    const isOurs = (slot: number) => this.cache.poolIndexOf(slot) === pool
    this.cache.closePool(pool)
    this.core.callOffAhead(isOurs)
    await this.streamer.settled(() => !this.cache.isReading(pool) || this.streamer.isOver)
    if (this.streamer.isOver) throw new ClosedError('model')
    this.cache.emptyPool(pool, slot => this.uploads.hide(slot))
    this.uploads.submit([])
    try {
      await this.pools.shrink(pool, slots, this.plan.leastSlots)
    } catch (error) {
      if (error instanceof DeviceLostError) this.lose(error)
      throw error
    }
    for (const [i, bytes] of shared.entries()) this.table.writeShared(layers[i], bytes)
    this.cache.openPool(pool, this.pools.slotsOf(pool))
    this.streamer.changed()
  }

  private async fillBuffer(layer: number, expert: number, buffer: number, priority: ReadPriority): Promise<void> {
    const target = this.uploads.view(buffer)
    const { moves } = this.plan.layouts[layer]
    if (moves === null) return await this.reader.read(layer, expert, target, priority)
    const record = new Uint8Array(this.plan.recordBytes)
    await this.reader.read(layer, expert, record, priority)
    for (const { from, to, size } of moves) target.set(record.subarray(from, from + size), to)
  }
}

/** What steps ask of experts in GPU memory. */
export type StepSlots = Pick<
  Residency,
  | ('isAllResident' | 'isResident' | 'isShown' | 'sharedSlot' | 'generation' | 'leastSlots')
  | ('tick' | 'beginStep' | 'moveUp' | 'gathers' | 'submit' | 'touch' | 'hold' | 'letGo' | 'waves' | 'endAhead')
  | ('onRead' | 'readsAsked' | 'has' | 'prefetch' | 'reading')
  | ('holdsAll' | 'fill' | 'forget' | 'residency' | 'bytes' | 'reads' | 'stats' | 'close')
>

/**
 * Of a model without experts: nothing can miss, nothing is read, and commands go straight to the
 * queue.
 */
export class NoExperts implements StepSlots {
  readonly isAllResident = true
  readonly generation = 0
  readonly leastSlots = Number.POSITIVE_INFINITY
  readonly readsAsked = 0
  readonly reading = 0
  readonly holdsAll = false
  readonly bytes = 0
  gathers = false
  onRead: (() => void) | null = null
  private readonly device: GPUDevice

  constructor(device: GPUDevice) {
    this.device = device
  }

  submit(commands: readonly GPUCommandBuffer[]): void {
    this.device.queue.submit([...commands])
  }

  get reads(): ReadTotals {
    return noReads()
  }

  get stats(): StreamerStats {
    return {
      ...{ expertHits: 0, expertMisses: 0, prefetchHits: 0, prefetchReads: 0, prefetchWastedBytes: 0 },
      ...{ stallSeconds: 0, expertSlots: 0, expertSlotsUsed: 0 },
    }
  }

  residency(): Uint8Array {
    return new Uint8Array(0)
  }

  isResident(): boolean {
    return true
  }

  isShown(): boolean {
    return true
  }

  has(): boolean {
    return true
  }

  sharedSlot(): null {
    return null
  }

  async *waves(): AsyncGenerator<void> {}
  async hold(): Promise<void> {}
  async fill(): Promise<void> {}
  async close(): Promise<void> {}
  tick(): void {}
  beginStep(): void {}
  moveUp(): void {}
  touch(): void {}
  letGo(): void {}
  endAhead(): void {}
  prefetch(): void {}
  forget(): void {}
}
