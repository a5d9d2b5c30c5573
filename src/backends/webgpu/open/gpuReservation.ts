// Finds room on a GPU and takes it. WebGPU does not tell how much memory a GPU has, so this asks by
// allocating: stand-ins hold what the model needs before its first expert, slots for experts are
// made beside them, and where that is refused, memory is asked for piece by piece until no more
// comes. The stand-ins then make way, and a reserve is left for drivers, other programs and growing
// keys and values. A GPU that shares the machine's memory is not asked: what is allocated there is
// taken from every program. There the plan goes by what the machine has free.
import { BackendUnavailableError, MoefluxError, OutOfMemoryError } from '../../../base/errors.js'
import type { MemoryFacts } from '../../../base/memoryFacts.js'
import { POOL_USAGE } from '../../../gpu/device/gpuFlags.js'
import { createChecked, settle } from '../../../gpu/device/gpuMemory.js'
import { type PoolPlan, poolBytes } from '../../../gpu/memory/slotLayout.js'
import type { HostSide } from '../../plan.js'
import { allExperts, checkAsked, type GpuModel, type GpuPlan, planGpu, planSharedGpu } from './gpuPlan.js'

/**
 * A desktop and a browser on the same GPU take some hundred megabytes more or less from one minute
 * to the next.
 */
const RESERVE = { least: 256 * 2 ** 20, share: 0.05, most: 2 ** 30 }

const PIECE_BYTES = 256 * 2 ** 20
const LEAST_PIECE = 16 * 2 ** 20

/** What the program takes beside the model where GPU and machine share memory. */
const PROGRAM_BYTES = 200e6

/** Nobody knows how much there is: what is asked for is tried. */
const UNKNOWN_MEMORY: MemoryFacts = {
  bytes: Number.POSITIVE_INFINITY,
  ceiling: Number.POSITIVE_INFINITY,
  limit: Number.POSITIVE_INFINITY,
  limitedBy: 'machine',
}

interface RoomRequest {
  readonly model: GpuModel
  readonly gpuMemory?: number // asked for, of experts on the GPU
  readonly expertMemory?: number // asked for, of experts in memory
  /** GPU and machine have one memory. */
  readonly isShared: boolean
  readonly memory: MemoryFacts | null // of the machine; null: nobody knows
  /** What computes beside the GPU, with so much memory; null: nothing. */
  readonly host: ((memory: MemoryFacts) => HostSide) | null
  /** Refusals so far: each makes the next attempt more modest. */
  readonly refusals: number
  readonly reserve?: number // bytes, where a test says how many
}

export interface Room {
  readonly plan: GpuPlan
  readonly pools: PoolPlan
  readonly buffers: readonly GPUBuffer[] // of the pools
}

/**
 * Room for a prompt's steps of the first length that leaves all experts on the GPU, or of the last:
 * long steps take memory that experts may need more.
 */
export async function takeRoomForChunks(
  device: GPUDevice,
  lengths: readonly number[],
  requestFor: (chunkTokens: number) => RoomRequest,
): Promise<{ readonly chunkTokens: number; readonly room: Room } & Pick<RoomRequest, 'model'>> {
  for (const chunkTokens of lengths.slice(0, -1)) {
    const request = requestFor(chunkTokens)
    const { model } = request
    const room = await takeRoom(device, request).catch(error => {
      if (error instanceof MoefluxError) return null // there is less to ask for
      throw error
    })
    if (room !== null && room.plan.gpuSlots >= allExperts(model)) return { chunkTokens, room, model }
    for (const buffer of room?.buffers ?? []) buffer.destroy()
    await settle(device)
  }
  const chunkTokens = lengths[lengths.length - 1]
  const request = requestFor(chunkTokens)
  return { chunkTokens, room: await takeRoom(device, request), model: request.model }
}

/** Throws BackendUnavailableError where there is no room for the least, with what is missing. */
async function takeRoom(device: GPUDevice, request: RoomRequest): Promise<Room> {
  const { model, isShared, memory } = request
  if (isShared) return takeShared(device, request, memory ?? UNKNOWN_MEMORY)
  const host = memory === null || request.host === null ? null : request.host(memory)
  // Where nothing computes beside the GPU, experts are nowhere else.
  const gpuMemory = request.gpuMemory ?? (host === null ? request.expertMemory : undefined)
  const askedBy = request.gpuMemory === undefined ? 'expertMemory' : 'gpuMemory'
  const planFor = (gpuBytes: number) => planGpu({ model, gpuBytes, gpuMemory, askedBy, host })
  const wish = planFor(Number.POSITIVE_INFINITY)
  const wanted = wish.fixedBytes + wish.gpuSlots * model.slotBytes
  const whole = await tryPlan(device, wish, model, reserveOf(request, wanted))
  if (whole !== null) return whole
  let granted = await measureRoom(device, wanted + reserveOf(request, wanted))
  for (;;) {
    const reserve = reserveOf(request, granted)
    const plan = planFor(granted - reserve)
    if (plan.missing > 0) throw new BackendUnavailableError('webgpu', plan.line)
    const room = await tryPlan(device, plan, model, reserve)
    if (room !== null) return room
    granted *= 0.98 // what comes in pieces does not always come in other pieces
  }
}

function reserveOf({ reserve, refusals }: RoomRequest, bytes: number): number {
  return (reserve ?? Math.min(RESERVE.most, Math.max(RESERVE.least, bytes * RESERVE.share))) * 2 ** refusals
}

async function takeShared(device: GPUDevice, request: RoomRequest, memory: MemoryFacts): Promise<Room> {
  const { model, gpuMemory, expertMemory, refusals } = request
  const shared = (bytes: number | undefined) =>
    planSharedGpu({ model, memory, programBytes: PROGRAM_BYTES, expertMemory: bytes })
  if (gpuMemory !== undefined) checkAsked(model, gpuMemory)
  let plan = shared(gpuMemory ?? expertMemory)
  if (refusals > 0) plan = shared((plan.gpuSlots * model.slotBytes) / 2 ** refusals)
  // Who says what the GPU is to have wants the processor to compute the others.
  if (gpuMemory !== undefined && request.host !== null) {
    const taken = plan.fixedBytes + plan.gpuSlots * model.slotBytes
    const rest = { ...memory, bytes: memory.bytes - taken, ceiling: memory.ceiling - taken }
    plan = planGpu({ model, gpuBytes: taken, gpuMemory, host: request.host(rest) })
  }
  return { plan, pools: plan.pools as PoolPlan, buffers: await createPools(device, plan, model) }
}

/** The pools of a plan, if all else that it needs fits beside them. */
async function tryPlan(device: GPUDevice, plan: GpuPlan, model: GpuModel, reserve: number): Promise<Room | null> {
  let standIns: GPUBuffer[] = []
  try {
    const inPools = model.config.expertLayers.length * model.slotBytes // of the fixed part: shared experts
    standIns = await createChecked(device, standInsFor(plan.fixedBytes - inPools + reserve), 'room')
    return { plan, pools: plan.pools as PoolPlan, buffers: await createPools(device, plan, model) }
  } catch (error) {
    if (error instanceof OutOfMemoryError) return null
    throw error
  } finally {
    for (const buffer of standIns) buffer.destroy()
    await settle(device)
  }
}

function createPools(device: GPUDevice, { pools }: GpuPlan, { slotBytes }: GpuModel): Promise<GPUBuffer[]> {
  const sizes = poolBytes(pools as PoolPlan, slotBytes)
  const descriptors = sizes.map((size, i) => ({ label: `experts ${i}`, size, usage: POOL_USAGE }))
  return createChecked(device, descriptors, 'expert memory')
}

function standInsFor(bytes: number): GPUBufferDescriptor[] {
  const count = Math.ceil(bytes / PIECE_BYTES)
  const size = Math.ceil(bytes / count / 4) * 4
  return Array.from({ length: count }, () => ({ label: 'stand-in', size, usage: POOL_USAGE }))
}

/** How many bytes the GPU gives, up to `wanted`: pieces until one is refused, then smaller ones. */
async function measureRoom(device: GPUDevice, wanted: number): Promise<number> {
  const pieces: GPUBuffer[] = []
  const least = Math.min(LEAST_PIECE, wanted / 1024)
  let granted = 0
  for (let size = PIECE_BYTES; size >= least && granted < wanted; ) {
    try {
      const descriptor = { label: 'piece', size: Math.ceil(size / 4) * 4, usage: POOL_USAGE }
      pieces.push(...(await createChecked(device, [descriptor], 'room')))
      granted += descriptor.size
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      size /= 2
    }
  }
  for (const piece of pieces) piece.destroy()
  await settle(device)
  return granted
}
