// SHA-256 through the web's own crypto, which Node and browsers share. Streams are hashed by
// `createHash`, in Node only.

/** [32]. `bytes` must not be shared memory. */
export async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>))
}

/** Two lower-case digits per byte. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('')
}
