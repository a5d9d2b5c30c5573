// Long steps of a prompt take memory that experts may need more: they are planned with only where every expert has room beside them.
import { MoefluxError } from '../../../base/errors.js'
import { settle } from '../../../gpu/device/gpuMemory.js'
import { allExperts } from './gpuPlan.js'
import { type Room, type RoomRequest, takeRoom } from './gpuReservation.js'

/** Room for steps of the first length that leaves all experts on the GPU, or of the last. */
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
