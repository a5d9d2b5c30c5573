// Bytes of a buffer, through another one that lives as long as that takes: for what is read seldom.
import { bufferUsage } from './gpuFlags.js'
import { createChecked, readMapped } from './gpuMemory.js'
import { Recorder } from './recorder.js'

export async function readBuffer(
  device: GPUDevice,
  buffer: GPUBuffer,
  offset: number,
  bytes: number,
): Promise<ArrayBuffer> {
  const descriptor = { label: 'readback', size: bytes, usage: bufferUsage.mapRead | bufferUsage.copyDst }
  const [target] = await createChecked(device, [descriptor], 'a copy of rows')
  try {
    const recorder = new Recorder(device, null)
    recorder.copy(buffer, offset, target, 0, bytes)
    recorder.submit()
    return await readMapped(target, bytes)
  } finally {
    target.destroy()
  }
}
