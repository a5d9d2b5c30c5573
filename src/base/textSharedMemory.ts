// Memory that workers see without a copy, where the platform has such memory; else it is copied when it is sent.

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
