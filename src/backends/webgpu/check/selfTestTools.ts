// What the parts of the self-test share: inputs, a run of an op, and what is close enough.
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { readMapped } from '../../../gpu/device/gpuMemory.js'
import type { Op } from '../../../gpu/device/op.js'
import { Recorder } from '../../../gpu/device/recorder.js'

export const EXACT = 1e-3 // largest difference, of the largest value
export const FAST = 0.05 // with int8 activations

/** Compares as many values as are wanted. NaN is never within the limit. */
export function differs(what: string, got: Float32Array, want: Float32Array, most: number): string | null {
  const largest = want.reduce((max, value) => Math.max(max, Math.abs(value)), 1e-30)
  for (const [i, value] of want.entries()) {
    if (!(Math.abs(got[i] - value) <= most * largest)) return `${what} gives ${got[i]}, want ${value}`
  }
  return null
}

export function noise(length: number): Float32Array {
  let state = 1
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  })
}

/** What an op leaves in a buffer. */
export async function runAndRead(device: GPUDevice, op: Op, tokens: number, from: GPUBuffer, length: number) {
  const size = length * 4
  const usage = bufferUsage.mapRead | bufferUsage.copyDst
  const readback = device.createBuffer({ label: 'self-test', size, usage })
  const recorder = new Recorder(device, null)
  op(recorder, { tokens, runs: 1 })
  recorder.copy(from, 0, readback, 0, size)
  recorder.submit()
  const values = new Float32Array(await readMapped(readback, size))
  readback.destroy()
  return values
}
