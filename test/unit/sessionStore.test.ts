import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { SnapshotStore } from '#moeflux/session/snapshotStore.js'
import type { StateStore } from '#moeflux/session/storeWriter.js'
import type { ChatMessage } from '#moeflux/text/messages.js'
import { answering, scriptedModel } from '../support/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const root = mkdtempSync(join(tmpdir(), 'moeflux-store-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
let folders = 0
const newFolder = () => join(root, String(++folders))
const model = 'abcdef0123456789'
const prefix = (length: number) => ({ length, key: String(length).padStart(16, '0') })

describe('the folder', () => {
  it('keeps bytes by model and prefix, and forgets what is dropped', async () => {
    const store = new SnapshotStore(newFolder())
    expect(await store.list(model)).toEqual([])
    expect(await store.read(model, prefix(3))).toBeNull()
    await store.write(model, prefix(3), Uint8Array.of(1, 2, 3))
    await store.write('ffff0000ffff', prefix(4), Uint8Array.of(4))
    expect(await store.list(model)).toEqual([prefix(3)])
    expect([...(await store.read(model, prefix(3)))!]).toEqual([1, 2, 3])
    await store.drop(model, prefix(3))
    await store.drop(model, prefix(3))
    expect(await store.list(model)).toEqual([])
  })

  it('stays within its budget, the least recently used go', async () => {
    const folder = newFolder()
    const store = new SnapshotStore(folder, { budget: 250 })
    for (const length of [1, 2]) await store.write(model, prefix(length), new Uint8Array(100))
    for (const [age, length] of [
      [60, 1],
      [30, 2],
    ]) {
      const then = new Date(Date.now() - age * 1000)
      for (const name of readdirSync(folder))
        if (name.includes(`-${length}-`)) utimesSync(join(folder, name), then, then)
    }
    await store.read(model, prefix(1))
    await store.write(model, prefix(3), new Uint8Array(100))
    expect((await store.list(model)).map(({ length }) => length).sort()).toEqual([1, 3])
    await store.write(model, prefix(4), new Uint8Array(300))
    expect((await store.list(model)).map(({ length }) => length).sort()).toEqual([1, 3])
  })

  it('ignores foreign files, and clears what a killed process left', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    writeFileSync(join(folder, 'notes.txt'), 'x'.repeat(999))
    writeFileSync(join(folder, '.old.part'), 'x')
    writeFileSync(join(folder, '.new.part'), 'x')
    const longAgo = new Date(Date.now() - 2 * 3_600_000)
    utimesSync(join(folder, '.old.part'), longAgo, longAgo)
    const store = new SnapshotStore(folder, { budget: 500 })
    await store.write(model, prefix(1), new Uint8Array(100))
    expect(readdirSync(folder).sort()).toEqual(['.new.part', expect.stringMatching(/-1-/), 'notes.txt'])
  })

  it('takes writes from many sides at once', async () => {
    const folder = newFolder()
    const stores = Array.from({ length: 4 }, () => new SnapshotStore(folder, { budget: 5_000 }))
    await Promise.all(
      stores.flatMap(store =>
        Array.from({ length: 20 }, (_, i) => store.write(model, prefix(i), new Uint8Array(200).fill(i))),
      ),
    )
    const left = await stores[0].list(model)
    for (const entry of left) {
      expect([...(await stores[1].read(model, entry))!]).toEqual(new Array(200).fill(entry.length))
    }
    expect(readdirSync(folder).filter(name => name.endsWith('.part'))).toEqual([])
  })

  it('lets no path into a name', async () => {
    const folder = newFolder()
    const store = new SnapshotStore(folder)
    await store.write('../../etc/passwd', prefix(1), Uint8Array.of(1))
    expect(readdirSync(folder)).toEqual([expect.stringMatching(/^[0-9a-f]+-1-0{15}1\.state$/)])
  })
})

describe('a session with a store', async () => {
  const tokenizer = await demoTokenizer()
  const script = answering(tokenizer, prompt => `Answer to ${prompt.length}.`)
  const user = (content: string): ChatMessage => ({ role: 'user', content })
  const system: ChatMessage = { role: 'system', content: 'You are patient and answer all that people ask you.' }

  /** One life of a process: opens, lets `work` chat, closes. */
  async function life<T>(
    store: string | StateStore,
    work: (chat: (messages: ChatMessage[]) => Promise<{ text: string; cached: number; fresh: number }>) => Promise<T>,
    fingerprint = model,
  ): Promise<{ result: T; warnings: string[] }> {
    const { model: opened, alive } = await scriptedModel({ script, fingerprint })
    const warnings: string[] = []
    const session = opened.createSession({ store, onWarning: line => warnings.push(line) })
    const result = await work(async messages => {
      const { text, usage } = await session.chat({ messages }).answer()
      return { text, cached: usage.cachedTokens, fresh: usage.newTokens }
    })
    await opened.close()
    expect(alive()).toEqual({ sequences: 0, held: 0 })
    return { result, warnings }
  }

  const stateFiles = (folder: string) =>
    readdirSync(folder)
      .filter(name => name.endsWith('.state'))
      .map(name => join(folder, name))

  it('goes on after a restart where it was', async () => {
    const folder = newFolder()
    const messages = [system, user('First question?')]
    for (let turn = 0; turn < 4; turn++) {
      const { result, warnings } = await life(folder, chat => chat([...messages]))
      expect(warnings).toEqual([])
      if (turn > 0) {
        expect(result.fresh).toBeLessThan(30)
        expect(result.cached).toBeGreaterThan(10)
      }
      messages.push({ role: 'assistant', content: result.text }, user(`Question ${turn}?`))
    }
    const other = await life(folder, chat => chat([system, user('Somebody else.')]))
    expect(other.result.cached).toBeGreaterThan(10)
  })

  it('gives nothing to another model', async () => {
    const folder = newFolder()
    await life(folder, chat => chat([system, user('Hi?')]))
    const { result, warnings } = await life(folder, chat => chat([system, user('Hi?')]), '9999999999999999')
    expect(result.cached).toBe(0)
    expect(warnings).toEqual([])
  })

  it('drops damaged entries with a warning and never serves them', async () => {
    const folder = newFolder()
    const messages = [system, user('Is it damaged?')]
    const { result: sound } = await life(folder, chat => chat(messages))
    const [size] = stateFiles(folder).map(path => statSync(path).size)
    for (const damage of [
      (bytes: Buffer) => bytes.subarray(0, bytes.length - 1),
      (bytes: Buffer) => bytes.subarray(0, 5),
      (bytes: Buffer) => Buffer.concat([bytes, Buffer.of(0)]),
      (bytes: Buffer) => Buffer.alloc(bytes.length),
      ...[0, 8, 40, size >> 1, size - 1].map(at => (bytes: Buffer) => {
        bytes[at] ^= 4
        return bytes
      }),
    ]) {
      for (const path of stateFiles(folder)) writeFileSync(path, damage(readFileSync(path)))
      const { result, warnings } = await life(folder, chat => chat(messages))
      expect(result).toEqual({ ...sound, cached: 0, fresh: sound.fresh })
      expect(warnings.length).toBeGreaterThan(0)
      expect(warnings[0]).toMatch(/a stored state of \d+ tokens was dropped/)
    }
  })

  it('works without the store when that fails, and warns once', async () => {
    const broken: StateStore = {
      maxEntryBytes: 1e9,
      list: async () => [],
      read: async () => null,
      write: async () => {
        throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
      },
      drop: async () => {},
    }
    const { result, warnings } = await life(broken, async chat => [await chat([user('a')]), await chat([user('b')])])
    expect(result.map(({ text }) => text)).toEqual([expect.any(String), expect.any(String)])
    expect(warnings).toEqual(['the snapshot store cannot be written: ENOSPC: no space left on device'])

    const file = newFolder()
    writeFileSync(file, 'not a folder')
    const other = await life(file, chat => chat([user('a')]))
    expect(other.result.text).toMatch(/^Answer/)
    expect(other.warnings.length).toBe(2)
  })

  it('is shared by several sessions at once', async () => {
    const folder = newFolder()
    const lives = await Promise.all(
      Array.from({ length: 3 }, (_, i) => life(folder, chat => chat([system, user(`I am ${i}`)]))),
    )
    expect(lives.flatMap(({ warnings }) => warnings)).toEqual([])
    const again = await life(folder, chat => chat([system, user('I am 1'), user('and more')]))
    expect(again.result.cached).toBeGreaterThan(10)
  })
})
