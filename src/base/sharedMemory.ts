// Memory that workers see without a copy, if the platform has it: pages that are not isolated have
// none, and copy what they send.

export function sharedBytes(count: number): Uint8Array {
  return new Uint8Array(memory(count))
}

export function sharedNumbers(count: number): Int32Array {
  return new Int32Array(memory(4 * count))
}

function memory(bytes: number): ArrayBufferLike {
  return typeof SharedArrayBuffer === 'undefined' ? new ArrayBuffer(bytes) : new SharedArrayBuffer(bytes)
}

/**
 * Copies bytes out of shared memory. V8's `set` copies them word by word, at a third of the speed
 * of `fill`: filling a Buffer of Node with one of its own length is a memcpy.
 */
export function copyShared(from: Uint8Array, to: Uint8Array): void {
  if (typeof Buffer === 'undefined') to.set(from)
  else Buffer.from(to.buffer, to.byteOffset, from.length).fill(from)
}
