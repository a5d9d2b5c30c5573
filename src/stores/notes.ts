// Small objects beside the states: what a process must know to make the same prompt of a conversation as the one that
// answered before. A JSON value under a key that only a hash is shown of. Says its own name and ends with a checksum, as
// states do. Unlike them it may be written again with another value: the last one counts.
import { SnapshotError } from '../base/errors.js'
import { hex, sha256 } from '../base/sha256.js'
import type { PrefixStore } from './prefixStore.js'

const KIND = 'moeflux note'
const VERSION = 1
const CHECKSUM_BYTES = 32

export class Notes {
  constructor(
    private readonly store: PrefixStore,
    private readonly namespace: string,
    private readonly fingerprint: string,
  ) {}

  /** Values by key; null for what is not there. `onDamaged` is told the names of those that cannot be read. */
  async read(
    keys: readonly string[],
    scope: string,
    onDamaged: (name: string, error: SnapshotError) => void,
    signal: AbortSignal,
  ): Promise<unknown[]> {
    const names = await Promise.all(keys.map(key => this.name(key, scope)))
    const found = await this.store.get(names, signal)
    return await Promise.all(
      names.map(async (name, i) => {
        const bytes = found[i]
        if (bytes === null) return null
        return await decodeNote(bytes, name).catch(error => {
          if (!(error instanceof SnapshotError)) throw error
          onDamaged(name, error)
          return null
        })
      }),
    )
  }

  /** Returns the bytes that were written. */
  async write(key: string, scope: string, value: unknown, signal: AbortSignal): Promise<number> {
    const name = await this.name(key, scope)
    const bytes = await encodeNote(name, value)
    await this.store.put(name, bytes, signal)
    return bytes.length
  }

  private async name(key: string, scope: string): Promise<string> {
    const text = JSON.stringify([KIND, VERSION, this.fingerprint, scope, key])
    return `${this.namespace}/note-${hex(await sha256(new TextEncoder().encode(text)))}`
  }
}

async function encodeNote(name: string, value: unknown): Promise<Uint8Array> {
  const body = new TextEncoder().encode(JSON.stringify([KIND, VERSION, name, value]))
  const out = new Uint8Array(body.length + CHECKSUM_BYTES)
  out.set(body)
  out.set(await sha256(body), body.length)
  return out
}

async function decodeNote(bytes: Uint8Array, name: string): Promise<unknown> {
  const body = bytes.slice(0, -CHECKSUM_BYTES)
  const sum = await sha256(body)
  if (bytes.length < CHECKSUM_BYTES || !sum.every((byte, i) => byte === bytes[body.length + i])) {
    throw new SnapshotError('BadChecksum', 'the stored note is damaged')
  }
  const [kind, version, own, value] = JSON.parse(new TextDecoder().decode(body)) as unknown[]
  if (kind !== KIND || version !== VERSION || own !== name) {
    throw new SnapshotError('OtherModel', 'the stored note is another than its name says')
  }
  return value
}
