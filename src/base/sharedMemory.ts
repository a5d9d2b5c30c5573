// Copies bytes out of shared memory. V8's own `set` does that word by word, at a third of the speed; filling a Buffer of Node
// with one as long as itself is a plain memcpy.

export function copyShared(from: Uint8Array, to: Uint8Array): void {
  if (typeof Buffer === 'undefined') to.set(from)
  else Buffer.from(to.buffer, to.byteOffset, from.length).fill(from)
}
