// Buffers that may not fit: created under an error scope, so that a refusal is an OutOfMemoryError and not a dead device.

import { OutOfMemoryError } from '../../base/errors.js'
import { bufferUsage, mapMode } from './gpuFlags.js'

export async function createChecked(
  device: GPUDevice,
  descriptors: readonly GPUBufferDescriptor[],
  what: string,
): Promise<GPUBuffer[]> {
  const bytes = descriptors.reduce((sum, { size }) => sum + size, 0)
  const tooLarge = descriptors.find(({ size }) => size > device.limits.maxBufferSize)
  if (tooLarge !== undefined) {
    throw new OutOfMemoryError(what, bytes, `a buffer of this GPU holds at most ${device.limits.maxBufferSize} bytes`)
  }
  device.pushErrorScope('out-of-memory')
  device.pushErrorScope('validation')
  const buffers: GPUBuffer[] = []
  let thrown: Error | null = null
  try {
    for (const descriptor of descriptors) buffers.push(device.createBuffer(descriptor))
  } catch (error) {
    thrown = error as Error // Dawn throws where mapped memory cannot be had
  }
  // Both at once: what others do while this waits is none of its business.
  const errors = await Promise.all([device.popErrorScope(), device.popErrorScope()])
  const message = thrown?.message ?? errors.find(error => error !== null)?.message
  if (message !== undefined) {
    for (const buffer of buffers) buffer.destroy()
    throw new OutOfMemoryError(what, bytes, message)
  }
  return buffers
}

/** What makes several buffers at once, in one go; throws OutOfMemoryError where one of them is refused. */
export async function makeChecked<T>(device: GPUDevice, what: string, make: () => T): Promise<T> {
  device.pushErrorScope('out-of-memory')
  const made = make()
  const error = await device.popErrorScope()
  if (error !== null) throw new OutOfMemoryError(what, 0, error.message)
  return made
}

/** What `read` makes of the bytes of a buffer for reading; they are gone afterwards. */
export async function withMapped<T>(buffer: GPUBuffer, size: number, read: (bytes: ArrayBuffer) => T): Promise<T> {
  await buffer.mapAsync(mapMode.read, 0, size)
  try {
    return read(buffer.getMappedRange(0, size))
  } finally {
    buffer.unmap()
  }
}

/** The bytes of a buffer for reading, copied. */
export function readMapped(buffer: GPUBuffer, size: number): Promise<ArrayBuffer> {
  return withMapped(buffer, size, bytes => bytes.slice(0))
}

/** Memory of destroyed buffers comes back when the queue has gone past the place where they were destroyed. */
export async function settle(device: GPUDevice): Promise<void> {
  const descriptor = { label: 'settle', size: 16, usage: bufferUsage.copyDst }
  const [buffer] = await createChecked(device, [descriptor], 'room').catch(() => [])
  for (let i = 0; i < 2; i++) {
    const encoder = device.createCommandEncoder()
    if (buffer !== undefined) encoder.clearBuffer(buffer)
    device.queue.submit([encoder.finish()])
    await device.queue.onSubmittedWorkDone()
  }
  buffer?.destroy()
}
