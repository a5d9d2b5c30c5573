// Everything between a layer that wants experts and the GPU that computes them, with a disk and a GPU that do nothing until
// told: the streamer's core, the staged reads, the uploads and the life of slots and buffers as they are, over a fake
// device. A schedule is a list of events; which may come next is always known, so that all of them can be tried.
import { ExpertUploads, type StagedReadActions, StagedReads } from '#moeflux/backends/webgpu/experts/loader.js'
import { MISSING, SlotTable } from '#moeflux/backends/webgpu/experts/slotTable.js'
import { ExpertCache } from '#moeflux/experts/expertCache.js'
import { slotState, stagingState } from '#moeflux/experts/slotLife.js'
import { type ReadOrders, StreamerCore } from '#moeflux/experts/streamerCore.js'
import type { SlotPools } from '#moeflux/gpu/memory/slotPools.js'

const layers = 2
const experts = 3
const stride = 4

export interface WorldShape {
  readonly slots: number
  readonly stagingBuffers: number
  /** How often each may happen in one schedule. */
  readonly most: { readonly [kind in Kind]?: number }
}

type Kind = 'hold' | 'waves' | 'ahead' | 'fail' | 'abort' | 'forget' | 'lose' | 'close'

interface Then {
  readonly ok: () => void
  readonly fail: (error: Error) => void
}

/** A promise that calls at once when it is settled, so that a schedule is a sequence of plain calls. */
// biome-ignore-start lint/suspicious/noThenProperty: that is what it is
function settledLater(register: (then: Then) => void): PromiseLike<void> {
  return { then: (ok: () => void, fail: (error: Error) => void) => register({ ok, fail }) } as unknown as Promise<void>
}
// biome-ignore-end lint/suspicious/noThenProperty: that is what it is

type Operation =
  | { readonly kind: 'table'; readonly rows: readonly number[]; readonly from: number }
  | { readonly kind: 'copy'; readonly buffer: FakeStaging; readonly slot: number }
  | { readonly kind: 'use'; readonly layer: number; readonly found: readonly (readonly [number, number])[] } // expert, slot; -1: by the table

class FakeStaging {
  isMapped = true
  isAsked = false // its range, since it was mapped
  content = 'nothing'
  mapping: Then | null = null

  constructor(readonly index: number) {}

  getMappedRange(): ArrayBuffer {
    if (!this.isMapped) throw new Error(`staging buffer ${this.index} is not mapped`)
    if (this.isAsked) throw new Error(`the range of staging buffer ${this.index} is asked for twice`)
    this.isAsked = true
    return new ArrayBuffer(stride)
  }

  unmap(): void {
    if (!this.isMapped) throw new Error(`staging buffer ${this.index} is unmapped twice`)
    this.isMapped = false
    this.isAsked = false
  }

  mapAsync(): PromiseLike<void> {
    if (this.isMapped || this.mapping !== null) throw new Error(`staging buffer ${this.index} is mapped twice`)
    return settledLater(then => {
      this.mapping = then
    })
  }

  destroy(): void {}
}

export class SlotWorld {
  readonly cache: ExpertCache
  readonly core: StreamerCore
  readonly reads: StagedReads
  readonly actions: StagedReadActions
  uploads!: ExpertUploads
  readonly staging: FakeStaging[] = []
  private readonly queue: Operation[] = [] // submitted, not executed
  private readonly memory: string[] // by slot: what the GPU has there
  private readonly table = new Array<number>(layers * experts).fill(MISSING) // as the GPU has it
  private readonly sent: string[] = [] // not submitted yet
  private readonly shown = new Map<number, number>() // by slot: the key that commands should find there
  private readonly underWay = new Map<number, { readonly buffer: number; readonly key: number } & Then>() // by slot
  private readonly left: Record<Kind, number>
  private request: {
    readonly kind: 'hold' | 'waves'
    readonly wanted: readonly number[]
    readonly got: number[]
  } | null = null
  private isFirstWave = true
  private gathers = false
  private isOver = false
  private readonly badReads = new Set<number>() // keys whose reads failed during this request

  static async create(shape: WorldShape, change: (world: SlotWorld) => void = () => {}): Promise<SlotWorld> {
    const world = new SlotWorld(shape)
    const device = world.device()
    const pools = { poolOfLayer: [0, 0], slots: shape.slots, pools: 1, hasShared: true }
    const places = { buffer: () => null, placeOf: (slot: number) => slot } as unknown as SlotPools
    const table = new SlotTable(device, { layers, experts, stride, pools }, places)
    world.uploads = await ExpertUploads.create(device, { stride, recordBytes: stride }, table, world.cache.life)
    world.uploads.onFree = () => world.reads.beginReads()
    change(world)
    while (world.queue.length > 0) world.execute()
    return world
  }

  private constructor(shape: WorldShape) {
    const none = { hold: 0, waves: 0, ahead: 0, fail: 0, abort: 0, forget: 0, lose: 0, close: 0 }
    this.left = { ...none, ...shape.most }
    this.memory = new Array<string>(shape.slots).fill('nothing')
    this.cache = new ExpertCache(
      { layers, experts, slots: shape.slots, expertBytes: stride, policy: 'lru' },
      { stagingBuffers: shape.stagingBuffers },
    )
    this.actions = {
      read: (layer, expert, buffer) => {
        this.uploads.view(buffer)
        const key = layer * experts + expert
        const slot = this.cache.slotOf(layer, expert)
        return settledLater(then => this.underWay.set(slot, { buffer, key, ...then }))
      },
      promote: () => {},
      hide: slot => {
        this.shown.delete(slot)
        this.uploads.hide(slot)
      },
      send: (buffer, slot, layer, expert) => {
        this.shown.set(slot, layer * experts + expert)
        this.sent.push(`${buffer} to ${slot}`)
        this.uploads.send(buffer, slot, layer * experts + expert)
      },
      flush: () => this.uploads.submit([]),
      ended: () => {},
    }
    this.reads = new StagedReads(this.cache, this.actions, () => this.core)
    const options = { aheadLimit: 1, expertSize: stride, fileNames: ['first', 'second'] }
    this.core = new StreamerCore(this.cache, this.reads as ReadOrders, options)
  }

  // --- events ------------------------------------------------------------------------------------------------------

  /** What may happen now, by name. */
  events(): string[] {
    const { core, left } = this
    const events: string[] = []
    if (!this.isOver) {
      if (this.request === null) {
        if (left.hold > 0) events.push('hold 0,1', 'hold 0,2')
        if (left.waves > 0) events.push('waves 0,1,2')
        if (this.gathers) events.push('end')
      } else {
        if (left.abort > 0) events.push('abort')
        if (core.failure !== null) events.push('give up')
        else if (this.hasWave()) events.push('compute')
      }
      if (left.ahead > 0) events.push('ahead 0,2', 'ahead 1,0')
      if (left.forget > 0) events.push('forget')
      if (left.lose > 0) events.push('lose')
      if (left.close > 0) events.push('close')
    }
    return [...events, ...this.ownEvents()]
  }

  /** Those of disk and GPU, which come whatever anybody does. */
  private ownEvents(): string[] {
    const events: string[] = []
    for (const slot of this.underWay.keys()) {
      events.push(`arrive ${slot}`)
      if (this.left.fail > 0) events.push(`fail ${slot}`)
    }
    if (this.queue.length > 0) events.push('execute')
    for (const buffer of this.staging) {
      const isCopied = !this.queue.some(operation => operation.kind === 'copy' && operation.buffer === buffer)
      if (buffer.mapping !== null && isCopied) events.push(`map ${buffer.index}`)
    }
    return events
  }

  happen(event: string): void {
    const [name, about = ''] = event.split(' ')
    const numbers = about.split(',').map(Number)
    if (name in this.left) this.left[name as Kind]--
    const handlers: Record<string, () => void> = {
      hold: () => this.ask('hold', numbers),
      waves: () => this.ask('waves', numbers),
      ahead: () => this.core.prefetch(numbers[0], numbers[1]),
      compute: () => this.compute(),
      abort: () => this.letGo(),
      give: () => this.giveUp(),
      end: () => this.gather(false),
      arrive: () => this.endRead(numbers[0], false),
      fail: () => this.endRead(numbers[0], true),
      execute: () => this.execute(),
      map: () => this.map(numbers[0]),
      forget: () => this.core.forget(slot => this.actions.hide(slot)),
      lose: () => {
        this.isOver = true
        this.reads.stop()
        this.cache.life.lose()
        this.letGo()
      },
      close: () => {
        this.isOver = true
        this.reads.stop()
        this.letGo()
      },
    }
    handlers[name]()
    this.check()
  }

  private ask(kind: 'hold' | 'waves', wanted: readonly number[]): void {
    this.request = { kind, wanted, got: [] }
    this.isFirstWave = true
    this.badReads.clear()
    // As the passes do it: a decode lets uploads wait for its commands, a prompt does not.
    this.gather(kind === 'hold')
    this.core.request(0, wanted)
  }

  private gather(on: boolean): void {
    this.gathers = on
    this.uploads.gathers = on
  }

  private hasWave(): boolean {
    const { core } = this
    if (this.request?.kind === 'hold') return core.isComplete
    return (this.isFirstWave && core.hasReady) || (!core.isWaiting && (core.hasReady || core.isComplete))
  }

  /** The caller's commands for what it was given; then it asks for more, or has done. */
  private compute(): void {
    const { core, request } = this
    if (request === null) throw new Error('nobody asked')
    if (request.kind === 'hold') {
      this.use(request.wanted.map(expert => [expert, -1]))
      request.got.push(...request.wanted)
      this.finish()
      return
    }
    this.isFirstWave = false
    const slots = core.take(experts)
    this.use(slots.map(slot => [this.cache.expertOf(slot), slot]))
    request.got.push(...slots.map(slot => this.cache.expertOf(slot)))
    core.giveBack()
    core.goOn()
    if (core.isComplete && !core.hasReady) this.finish()
  }

  private use(found: readonly (readonly [number, number])[]): void {
    this.uploads.submit([{ operations: [{ kind: 'use', layer: 0, found }] }] as unknown as GPUCommandBuffer[], 1)
  }

  private finish(): void {
    const { wanted, got } = this.request as { wanted: readonly number[]; got: number[] }
    if (String([...got].sort()) !== String([...wanted].sort())) throw new Error(`wanted ${wanted}, computed ${got}`)
    this.letGo()
  }

  private giveUp(): void {
    const { layer, expert } = this.core.failure ?? { layer: -1, expert: -1 }
    if (!this.badReads.has(layer * experts + expert)) throw new Error(`expert ${expert} did not fail`)
    this.letGo()
  }

  private letGo(): void {
    this.core.release()
    this.request = null
  }

  private endRead(slot: number, fails: boolean): void {
    const read = this.underWay.get(slot)
    if (read === undefined) throw new Error(`nothing is read into slot ${slot}`)
    this.underWay.delete(slot)
    const buffer = this.staging[read.buffer]
    if (!buffer.isMapped && !this.isOver)
      throw new Error(`a read ends in staging buffer ${read.buffer}, which is not mapped`)
    // A read that fails may have brought half of the bytes.
    buffer.content = fails ? 'garbage' : String(read.key)
    if (fails) {
      this.badReads.add(read.key)
      read.fail(new Error('EIO'))
    } else read.ok()
  }

  private execute(): void {
    const operation = this.queue.shift() as Operation
    if (operation.kind === 'table') this.table.splice(operation.from, operation.rows.length, ...operation.rows)
    else if (operation.kind === 'copy') {
      if (operation.buffer.isMapped)
        throw new Error(`the GPU copies staging buffer ${operation.buffer.index} while it is mapped`)
      this.memory[operation.slot] = operation.buffer.content
    } else {
      for (const [expert, given] of operation.found) {
        const key: number = operation.layer * experts + expert
        const slot = given < 0 ? this.table[key] : given
        if (slot === MISSING) throw new Error(`expert ${expert} is computed and in no slot`)
        if (this.memory[slot] !== String(key)) {
          throw new Error(`expert ${expert} is computed from slot ${slot}, which holds ${this.memory[slot]}`)
        }
      }
    }
  }

  private map(index: number): void {
    const buffer = this.staging[index]
    const { ok } = buffer.mapping as Then
    buffer.mapping = null
    buffer.isMapped = true
    ok()
  }

  // --- what must always hold ---------------------------------------------------------------------------------------

  private check(): void {
    const { life } = this.cache
    for (const buffer of this.staging) {
      const state = life.stagingStateOf(buffer.index)
      const isUsed =
        this.queue.some(operation => operation.kind === 'copy' && operation.buffer === buffer) ||
        this.sent.some(line => line.startsWith(`${buffer.index} to`))
      if (state === stagingState.free && (!buffer.isMapped || isUsed)) {
        throw new Error(
          `staging buffer ${buffer.index} is free while ${isUsed ? 'it is to be copied' : 'it is not mapped'}`,
        )
      }
      if (state === stagingState.filling && !buffer.isMapped) throw new Error('a buffer is filled that is not mapped')
    }
    for (let slot = 0; slot < this.cache.slots; slot++) {
      if (this.request === null && life.pinsOf(slot) > 0) throw new Error(`slot ${slot} stays pinned`)
      if (this.request === null && life.stateOf(slot) === slotState.failed) throw new Error(`slot ${slot} stays failed`)
      const key = this.shown.get(slot)
      if (key === undefined) continue
      const owner = this.cache.layerOf(slot) * experts + this.cache.expertOf(slot)
      if (life.stateOf(slot) !== slotState.ready || owner !== key) {
        throw new Error(`slot ${slot} is shown as expert ${key}, which it does not hold`)
      }
    }
    if (this.isOver) return
    if (this.request !== null && this.core.failure === null && !this.hasWave() && this.ownEvents().length === 0) {
      throw new Error('the request waits for ever')
    }
    if (this.queue.length === 0 && this.sent.length === 0 && !this.gathers) this.checkAtRest()
  }

  /** Where nothing is submitted or waits to be: what the GPU finds is what it should. */
  private checkAtRest(): void {
    for (const [key, slot] of this.table.entries()) {
      const isShown = slot !== MISSING && this.shown.get(slot) === key
      if (slot !== MISSING && !isShown) throw new Error(`the table shows expert ${key} in slot ${slot}`)
      if (slot !== MISSING && this.memory[slot] !== String(key)) {
        throw new Error(`slot ${slot} should hold expert ${key} and holds ${this.memory[slot]}`)
      }
    }
    for (const [slot, key] of this.shown) {
      if (this.table[key] !== slot) throw new Error(`expert ${key} is in slot ${slot}, and the table does not say so`)
    }
  }

  /** Equal for worlds in which the same can happen. */
  key(): string {
    const { life } = this.cache
    const core = this.core as unknown as Record<string, Iterable<unknown>>
    const reads = this.reads as unknown as Record<string, unknown>
    const { next } = (this.cache as unknown as { pools: { policy: { next: Int32Array } }[] }).pools[0].policy
    return JSON.stringify([
      Array.from({ length: this.cache.slots }, (_, slot) => [
        life.stateOf(slot),
        life.pinsOf(slot),
        this.cache.layerOf(slot),
        this.cache.expertOf(slot),
        this.shown.get(slot),
        this.memory[slot],
      ]),
      [...next],
      (this.cache as unknown as { pools: { empty: number[] }[] }).pools[0].empty,
      this.staging.map(buffer => [
        life.stagingStateOf(buffer.index),
        buffer.content,
        buffer.isAsked,
        buffer.mapping !== null,
      ]),
      (life as unknown as { free: number[] }).free,
      [core.taken, core.ready, core.pending, core.broken, core.ahead].map(list => [...list]),
      [...core.waiting].map(slot => [slot, [...core.isOwn][slot as number]]),
      this.core.failure?.expert,
      reads.demands,
      reads.ahead,
      this.queue.map(operation => (operation.kind === 'copy' ? [operation.buffer.index, operation.slot] : operation)),
      this.sent,
      this.table,
      [...this.underWay].map(([slot, { buffer, key }]) => [slot, buffer, key]),
      this.left,
      this.request,
      this.isFirstWave,
      this.gathers,
      this.isOver,
      [...this.badReads].sort(),
    ])
  }

  private device(): GPUDevice {
    return {
      limits: { maxBufferSize: 2 ** 20 },
      pushErrorScope: () => {},
      popErrorScope: async () => null,
      createBuffer: ({ label }: { label: string }) => {
        if (label !== 'expert staging') return { label }
        this.staging.push(new FakeStaging(this.staging.length))
        return this.staging.at(-1)
      },
      createCommandEncoder: () => {
        const operations: Operation[] = []
        return {
          copyBufferToBuffer: (buffer: FakeStaging, _from: number, _target: unknown, offset: number) =>
            operations.push({ kind: 'copy', buffer, slot: offset / stride }),
          finish: () => ({ operations }),
        }
      },
      queue: {
        submit: (commands: readonly { operations: Operation[] }[]) => {
          for (const operation of commands.flatMap(({ operations }) => operations)) {
            this.queue.push(operation)
            if (operation.kind !== 'copy') continue
            this.sent.splice(this.sent.indexOf(`${operation.buffer.index} to ${operation.slot}`), 1)
          }
        },
        writeBuffer: (_table: unknown, offset: number, rows: Uint32Array, from = 0, size = rows.length) =>
          this.queue.push({ kind: 'table', from: offset / 4, rows: [...rows.subarray(from, from + size)] }),
      },
    } as unknown as GPUDevice
  }
}
