// SHA-256, and what is named by it: stores, caches and snapshots of earlier versions are found by
// these very names.
import { describe, expect, test } from 'vitest'
import { hex, sha256 } from '#moeflux/base/sha256.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { fingerprintOf, sampleHash } from '#moeflux/files/packed/fingerprint.js'
import { readConfig } from '#moeflux/files/packed/openPacked.js'
import { cacheFolderName } from '#moeflux/files/pieces/modelCache.js'
import { Notes } from '#moeflux/stores/notes.js'
import { StateNames } from '#moeflux/stores/stateNames.js'
import { MemoryStore } from '../support/memoryStore.js'
import { tinySource } from '../support/models/packedFiles.js'

const encode = (text: string) => new TextEncoder().encode(text)
const FINGERPRINT = 'f'.repeat(64)

test('is that of the standard (FIPS 180-4), also of a part of a buffer', async () => {
  const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
  expect(hex(await sha256(encode('abc')))).toBe(abc)
  expect(hex(await sha256(encode('xabcx').subarray(1, 4)))).toBe(abc)
  expect(hex(Uint8Array.of(0, 10, 255))).toBe('000aff')
})

describe('stays the same for', () => {
  test('pages and states in stores', async () => {
    const identity = { fingerprint: FINGERPRINT, expertsPerToken: 8, body: 'bf16', scope: 'one' }
    const names = new StateNames(
      'test',
      identity,
      Array.from({ length: 300 }, (_, i) => i),
    )
    expect(await names.page(2)).toBe('test/kv-2a5729a35a0105ac33be9646e31e20e02d504063fcec314b802cb950f53a55ce')
    expect(await names.state(300)).toBe('test/state-bb54287081f7ae4114083530ea857c251067d036f29d6e10f2aeafa62fdca343')
  })

  test('notes in stores, and the checksums at their ends', async () => {
    const store = new MemoryStore()
    await new Notes(store, 'test', FINGERPRINT).write('key', 'one', { a: 1 }, new AbortController().signal)
    const [[name, bytes]] = store.objects
    expect(name).toBe('test/note-b1c8e67c9ac4ff21c2680a00dd1782307710fa07e6f3d270769e2aa0920012d2')
    expect(hex(bytes.slice(-32))).toBe('e67151337eaf4720ad2fff28360c4304bd75882c276e2fb48508d67549253cc8')
  })

  test('folders of models in the storage of browsers', async () => {
    expect(await cacheFolderName('https://example.com/model')).toBe('7c580c081b5dbbabab0915bc')
  })

  test('models', async () => {
    const bytes = Uint8Array.from({ length: 10_000 }, (_, i) => i % 251)
    const source = {
      name: 'a',
      size: bytes.length,
      read: async (offset: number, target: Uint8Array) => target.set(bytes.subarray(offset, offset + target.length)),
      close: async () => {},
    }
    expect(await sampleHash(source, 16)).toBe('1f263445dbccd37385a95493ea700adb836ef7967a8af5fa67b4afb559c71b9b')
    const config = await readConfig(await openNodeFolder(tinySource, { links: 'any' }))
    const parts = { config, stored: new Map(), metadata: null, set: 'packed_experts', weights: source } as const
    const files = config.expertLayers.map(() => source)
    expect(await fingerprintOf({ ...parts, files })).toBe(
      '426c7e241eebdb38f140c615792a6b542c3085488716f77ace674ee4609ac6b8',
    )
  })
})
