// Reads of weights into mapped memory: where one fails, none is under way any more when that is told.
import { expect, test } from 'vitest'
import type { ByteSource } from '#moeflux/files/source.js'
import { WeightStaging } from '#moeflux/gpu/memory/weightStaging.js'

const LANE_BYTES = 64 * 1024
const PIECES = 12

/** As much of a device as staging sees; copies are done at once. */
function fakeDevice(): GPUDevice {
  const buffer = ({ size }: GPUBufferDescriptor) => ({
    size,
    getMappedRange: (_: number, bytes: number) => new ArrayBuffer(bytes),
    unmap() {},
    mapAsync: () => Promise.resolve(),
    destroy() {},
  })
  return {
    limits: { maxBufferSize: 2 ** 30 },
    pushErrorScope() {},
    popErrorScope: () => Promise.resolve(null),
    createBuffer: buffer,
    createCommandEncoder: () => ({ copyBufferToBuffer() {}, finish: () => ({}) }),
    queue: { submit() {} },
  } as unknown as GPUDevice
}

/** A source whose reads end when they are told to. */
function heldSource() {
  const reads: { offset: number; resolve(): void; reject(error: Error): void }[] = []
  const source: ByteSource = {
    name: 'weights',
    size: PIECES * LANE_BYTES,
    read: offset => new Promise((resolve, reject) => reads.push({ offset, resolve, reject })),
    close: () => Promise.resolve(),
  }
  return { source, reads }
}

const turn = () => new Promise(resolve => setImmediate(resolve))

test.each([0, 1, 2, 3])('read %i of four fails: told when the others have ended, and no more begin', async which => {
  const device = fakeDevice()
  const staging = await WeightStaging.create(device, 0)
  const { source, reads } = heldSource()
  let told: unknown = null
  const target = device.createBuffer({ size: PIECES * LANE_BYTES, usage: 0 })
  const loading = staging.load(source, [{ from: 0, at: 0, size: PIECES * LANE_BYTES }], target).catch(error => {
    told = error
  })
  await turn()
  expect(reads.length).toBe(4)
  const error = new Error('EIO')
  reads[which].reject(error)
  for (const [i, read] of reads.entries()) {
    await turn()
    if (i === which) continue
    expect(told, `read ${i} is under way`).toBeNull()
    read.resolve()
  }
  await loading
  expect(told).toBe(error)
  expect(reads.length).toBe(4)
})

test('all pieces are read once, four at a time', async () => {
  const device = fakeDevice()
  const staging = await WeightStaging.create(device, 0)
  const { source, reads } = heldSource()
  const target = device.createBuffer({ size: PIECES * LANE_BYTES, usage: 0 })
  const loading = staging.load(source, [{ from: 0, at: 0, size: PIECES * LANE_BYTES }], target)
  for (let done = 0; done < PIECES; done++) {
    await turn()
    expect(reads.length).toBe(Math.min(PIECES, done + 4))
    reads[done].resolve()
  }
  await loading
  await staging.close()
  expect(reads.map(({ offset }) => offset)).toEqual(Array.from({ length: PIECES }, (_, i) => i * LANE_BYTES))
})
