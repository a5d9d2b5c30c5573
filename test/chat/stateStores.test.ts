// States of conversations in a folder: what a store survives, and what a session gets back from it.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import type { StoreChoice } from '#moeflux/chat/stateStores.js'
import { FolderStore } from '#moeflux/stores/folderStore.js'
import type { ChatMessage } from '#moeflux/text/template/messages.js'
import { MemoryStore } from '../support/memoryStore.js'
import { answering, scriptedModel } from '../support/models/scriptedModel.js'
import { demoTokenizer } from '../support/textTools.js'

const root = mkdtempSync(join(tmpdir(), 'moeflux-store-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
let folders = 0
const newFolder = () => join(root, String(++folders))
const model = 'abcdef0123456789'

describe('the folder', () => {
  const name = (number: number) => `test/kv-${String(number).padStart(64, '0')}`
  const numbers = (folder: string) =>
    readdirSync(join(folder, 'test'))
      .map(file => Number(file.slice(3)))
      .sort()

  test('keeps bytes by name, and forgets what is removed', async () => {
    const store = new FolderStore(newFolder())
    expect(await store.has([name(1), name(2)])).toEqual([false, false])
    expect(await store.get([name(1)])).toEqual([null])
    await store.put(name(1), Uint8Array.of(1, 2, 3))
    expect(await store.has([name(2), name(1)])).toEqual([false, true])
    expect((await store.get([name(2), name(1)])).map(bytes => bytes && [...bytes])).toEqual([null, [1, 2, 3]])
    await store.remove(name(1))
    await store.remove(name(1))
    expect(await store.has([name(1)])).toEqual([false])
  })

  test('stays within its budget, the least recently used go', async () => {
    const folder = newFolder()
    const store = new FolderStore(folder, { budget: 350 })
    for (const number of [1, 2, 3]) await store.put(name(number), new Uint8Array(100))
    for (const [age, number] of [
      [60, 1],
      [30, 2],
      [10, 3],
    ]) {
      const then = new Date(Date.now() - age * 1000)
      utimesSync(join(folder, name(number)), then, then)
    }
    await store.get([name(1)])
    await store.put(name(4), new Uint8Array(100))
    expect(numbers(folder)).toEqual([1, 3, 4])
    await store.put(name(5), new Uint8Array(400))
    expect(numbers(folder)).toEqual([1, 3, 4])
  })

  test('ignores foreign files, and clears what a killed process or an earlier version left', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const earlier = `abcdef0123456789-17-${'0'.repeat(16)}.state`
    for (const file of ['notes.txt', '.old.part', '.new.part', earlier]) {
      writeFileSync(join(folder, file), 'x'.repeat(400))
    }
    const longAgo = new Date(Date.now() - 2 * 3_600_000)
    for (const file of ['.old.part', earlier]) utimesSync(join(folder, file), longAgo, longAgo)
    await new FolderStore(folder, { budget: 450 }).put(name(1), new Uint8Array(100))
    expect(readdirSync(folder).sort()).toEqual(['.new.part', 'notes.txt', 'test'])
    expect(numbers(folder)).toEqual([1])
  })

  test('takes writes from many sides at once', async () => {
    const folder = newFolder()
    const stores = Array.from({ length: 4 }, () => new FolderStore(folder, { budget: 5_000 }))
    const puts = stores.flatMap(store =>
      Array.from({ length: 20 }, (_, i) => store.put(name(i), new Uint8Array(200).fill(i))),
    )
    await Promise.all(puts)
    for (const number of numbers(folder)) {
      const [bytes] = await stores[1].get([name(number)])
      expect([...(bytes as Uint8Array)]).toEqual(new Array(200).fill(number))
    }
    expect(readdirSync(folder)).toEqual(['test'])
  })

  test('lets no path out of its folder', async () => {
    const folder = newFolder()
    mkdirSync(folder)
    const store = new FolderStore(folder)
    expect(await store.has(['../../etc/passwd', 'a/../../x'])).toEqual([false, false])
    await expect(store.put('../escaped', Uint8Array.of(1))).rejects.toMatchObject({ code: 'BAD_OPTION' })
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('a session with a store', async () => {
  const tokenizer = await demoTokenizer()
  const script = answering(tokenizer, prompt => `Answer to ${prompt.length}.`)
  const user = (content: string): ChatMessage => ({ role: 'user', content })
  const system: ChatMessage = { role: 'system', content: 'You are patient and answer all that people ask you.' }

  /** One life of a process: opens, lets `work` chat, closes. */
  async function life<T>(
    store: StoreChoice,
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

  const stateFiles = (folder: string) => readdirSync(join(folder, 'moeflux')).map(name => join(folder, 'moeflux', name))

  test('goes on after a restart where it was', async () => {
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

  test('gives nothing to another model', async () => {
    const folder = newFolder()
    await life(folder, chat => chat([system, user('Hi?')]))
    const { result, warnings } = await life(folder, chat => chat([system, user('Hi?')]), '9999999999999999')
    expect(result.cached).toBe(0)
    expect(warnings).toEqual([])
  })

  test('drops damaged entries with a warning and never serves them', async () => {
    const folder = newFolder()
    const messages = [system, user('Is it damaged?')]
    const { result: sound } = await life(folder, chat => chat(messages))
    for (const damage of [
      (bytes: Buffer) => bytes.subarray(0, bytes.length - 1),
      (bytes: Buffer) => bytes.subarray(0, 5),
      (bytes: Buffer) => Buffer.concat([bytes, Buffer.of(0)]),
      (bytes: Buffer) => Buffer.alloc(bytes.length),
      ...[0, 0.01, 0.2, 0.5, 0.999].map(share => (bytes: Buffer) => {
        bytes[Math.floor(share * bytes.length)] ^= 4
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

  test('works without the store when that fails, and warns once', async () => {
    const broken = new MemoryStore()
    broken.before = (_, kind) => {
      if (kind === 'put') throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
    }
    const store = { store: broken, writes: 'idle' as const }
    const { result, warnings } = await life(store, async chat => [await chat([user('a')]), await chat([user('b')])])
    expect(result.map(({ text }) => text)).toEqual([expect.any(String), expect.any(String)])
    expect(warnings).toEqual(['the disk store is not written for a while: ENOSPC: no space left on device'])

    const file = newFolder()
    writeFileSync(file, 'not a folder')
    const other = await life(file, chat => chat([system, user('a')]))
    expect(other.result.text).toMatch(/^Answer/)
    expect(other.warnings.length).toBe(2)
  })

  test('is shared by several sessions at once', async () => {
    const folder = newFolder()
    const lives = await Promise.all(
      Array.from({ length: 3 }, (_, i) => life(folder, chat => chat([system, user(`I am ${i}`)]))),
    )
    expect(lives.flatMap(({ warnings }) => warnings)).toEqual([])
    const again = await life(folder, chat => chat([system, user('I am 1'), user('and more')]))
    expect(again.result.cached).toBeGreaterThan(10)
  })
})
