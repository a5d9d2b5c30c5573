// Copies bytes out of shared memory. V8's own `set` does that word by word, at a third of the speed; filling a Buffer of Node
// with one as long as itself is a plain memcpy.

export function copyShared(from: Uint8Array, to: Uint8Array): void {
  if (typeof Buffer === 'undefined') to.set(from)
  else Buffer.from(to.buffer, to.byteOffset, from.length).fill(from)
}

/** Memory that workers see without a copy, where the platform has such memory; else it is copied when it is sent. */
export function sharedBytes(count: number): Uint8Array {
  return new Uint8Array(memory(count))
}

export function sharedNumbers(count: number): Int32Array {
  return new Int32Array(memory(4 * count))
}

/** Pages that are not isolated from others have no shared memory. */
function memory(bytes: number): ArrayBufferLike {
  return typeof SharedArrayBuffer === 'undefined' ? new ArrayBuffer(bytes) : new SharedArrayBuffer(bytes)
}
