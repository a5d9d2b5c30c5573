// What goes wrong between a tab, its storage and a server: each is told by a stable code, and there is a way on.
import { cpSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { NAN, poisonExperts } from '../../support/faults/poison.js'
import { demoModel } from '../../support/models/models.js'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import {
  type EnginePage,
  engineIsThere,
  expertFiles,
  modelFiles,
  openEnginePage,
} from '../../support/servers/enginePage.js'

vi.setConfig({ testTimeout: 150_000, maxConcurrency: 3 }) // they mostly wait: for a browser, a server, another try

const request = { prompt: 'Tell me a story about a dog.', maxTokens: 12, temperature: 0 }
const weights = /model_weights\.bin$/

/** Opens the model and answers once, in the page; what went wrong instead of throwing it. */
async function visit({ page }: EnginePage, keepOpen = false) {
  return await page.evaluate(
    async ({ request, keepOpen }) => {
      const { openModel, MoefluxError } = window.moeflux
      const notices: string[] = []
      try {
        const onNotice = (line: string) => notices.push(line)
        // Which guesses are read in time differs from visit to visit; tests count reads.
        const model = await openModel('/model/', { backend: 'wasm', threads: 1, prefetch: false, onNotice })
        const { text } = await model.generate(request)
        const stats = await model.stats()
        const storage = await model.storage()
        if (keepOpen) window.model = model
        else await model.close()
        return { text, stats, storage, notices, failure: null }
      } catch (error) {
        const { name, code, message } = error as InstanceType<typeof MoefluxError>
        return { notices, failure: { name, code, message, known: error instanceof MoefluxError } }
      }
    },
    { request, keepOpen },
  )
}

async function mustAnswer(at: EnginePage, keepOpen = false) {
  const result = await visit(at, keepOpen)
  if (result.failure !== null) throw new Error(result.failure.message)
  return result
}

/** Overwrites bytes of a stored file, as a bad disk would. */
async function damage({ page }: EnginePage, file: RegExp, at: number) {
  await page.evaluate(
    async ({ pattern, at }) => {
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('moeflux')
      for await (const folder of root.values()) {
        for await (const handle of (folder as FileSystemDirectoryHandle).values()) {
          if (!new RegExp(pattern).test(handle.name)) continue
          const writable = await (handle as FileSystemFileHandle).createWritable({ keepExistingData: true })
          await writable.write({ type: 'write', position: at, data: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8) })
          await writable.close()
        }
      }
    },
    { pattern: file.source, at },
  )
}

test.concurrent('a server without the model, or that stops while the model is loaded', async ({ onTestFinished }) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server } = at
  server.faults = { path: modelFiles, status: 404 }
  expect((await visit(at)).failure).toMatchObject({ name: 'ModelNotFoundError', code: 'MODEL_NOT_FOUND', known: true })

  server.faults = { path: weights, dropAfter: 2_500_000, times: 1, next: { path: modelFiles, refuse: true } }
  const { failure } = await visit(at)
  expect(failure).toMatchObject({ name: 'FetchError', code: 'UNREACHABLE', known: true })
  expect(failure?.message).toMatch(/model_weights\.bin: the server cannot be reached/)

  // The way on: try again once the server is back. What had come is not fetched again.
  server.faults = {}
  server.log.length = 0
  await mustAnswer(at)
  const asked = server.log.filter(({ path }) => weights.test(path)).map(({ range }) => range?.[0] ?? 0)
  expect(Math.min(...asked)).toBe(2 * 2 ** 20) // two whole pieces were stored
})

test.concurrent('connections that break off in the middle are taken up again where they broke', async ({
  onTestFinished,
}) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server } = at
  server.faults = { path: modelFiles, dropAfter: 1_000_000 }
  const { text } = await mustAnswer(at)
  expect(server.log.filter(({ path }) => weights.test(path)).length).toBeGreaterThan(3)
  server.faults = { path: expertFiles, dropAfter: 20_000, times: 3 }
  await at.page.reload()
  await engineIsThere(at.page)
  expect((await mustAnswer(at)).text).toBe(text)
})

test.concurrent('a server that goes, or a file that changes, in the middle of an answer', async ({
  onTestFinished,
}) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server, page } = at
  const open = () =>
    page.evaluate(async () => {
      window.model = await window.moeflux.openModel('/model/', {
        backend: 'wasm',
        threads: 1,
        prefetch: false,
        cache: 'memory',
      })
    })
  const answer = (options: object) =>
    page.evaluate(
      async options => {
        try {
          return { text: (await window.model.generate(options)).text }
        } catch (error) {
          const { name, code, message } = error as { name: string; code: string; message: string }
          return { name, code, message, known: error instanceof window.moeflux.ExpertReadError }
        }
      },
      { ...request, ...options },
    )
  await open()
  // A few experts come, then none.
  server.faults = { path: expertFiles, times: 3, next: { path: expertFiles, refuse: true } }
  const gone = await answer({})
  expect(gone).toMatchObject({ name: 'ExpertReadError', code: 'EXPERT_READ', known: true })
  expect(gone.message).toContain('the server cannot be reached and the expert is not in the cache')
  server.faults = {}
  const { text } = await answer({})
  expect(text).toMatch(/^Once upon a time/)

  await page.reload()
  await engineIsThere(page)
  await open()
  await answer({ maxTokens: 1 })
  server.faults = { path: expertFiles, changedTag: true }
  expect((await answer({ prompt: 'Name three birds and a tree!' })).message).toContain(
    'the file on the server has changed',
  )
  await page.evaluate(() => window.model.close())
  await open()
  expect((await answer({})).text).toBe(text)
})

test.concurrent('storage that is full: the answer is the same, and it is told once', async ({ onTestFinished }) => {
  const at = await openEnginePage({}, onTestFinished)
  const { page, server } = at
  const session = await at.browser.context.newCDPSession(page)
  await session.send('Storage.overrideQuotaForOrigin', { origin: server.origin, quotaSize: 8_000_000 })
  const full = await mustAnswer(at)
  expect(full.notices.filter(line => line.includes('no more storage'))).toHaveLength(1)
  expect(full.storage.expertsCached).toBeLessThan(full.stats.networkReads)
  await session.send('Storage.overrideQuotaForOrigin', { origin: server.origin })
  await page.reload()
  await engineIsThere(page)
  const roomy = await mustAnswer(at)
  expect(roomy.text).toBe(full.text)
  expect(roomy.stats.cacheReads).toBeGreaterThan(0)
  expectStored(roomy.storage.expertsCached - full.storage.expertsCached, roomy.stats)
})

test.concurrent('experts of another model make room', async ({ onTestFinished }) => {
  const at = await openEnginePage({}, onTestFinished)
  const { page, server } = at
  const other = await page.evaluate(async request => {
    const model = await window.moeflux.openModel('/dist/demo-model/', { backend: 'wasm', threads: 1 })
    await model.generate(request)
    const { usage } = await model.storage()
    await model.close()
    return usage as number
  }, request)
  const session = await at.browser.context.newCDPSession(page)
  const quotaSize = other + 6_000_000 // for all but the last experts
  await session.send('Storage.overrideQuotaForOrigin', { origin: server.origin, quotaSize })
  const { notices, storage, stats } = await mustAnswer(at)
  expect(notices.filter(line => line.includes('experts of another model were removed'))).toHaveLength(1)
  expectStored(storage.expertsCached, stats)
})

test.concurrent('stored bytes that were damaged are fetched again', async ({ onTestFinished }) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server } = at
  const whole = await mustAnswer(at)
  await damage(at, /^packed_experts\.records$/, 100)
  await damage(at, /^pieces-model_weights.*\.records$/, 5_000)
  await damage(at, /^tokenizer\.json$/, 1_000)
  server.log.length = 0
  const again = await mustAnswer(at)
  expect(again.text).toBe(whole.text)
  expect(again.stats.networkReads).toBe(1)
  expect(server.bytesOf(weights)).toBe(2 ** 20)
  expect(again.notices.filter(line => line.includes('damaged'))).toHaveLength(2)
  // Whole again, and an index that is damaged only forgets.
  expect((await mustAnswer(at)).stats.networkReads).toBe(0)
  await damage(at, /^packed_experts\.index$/, 0)
  const forgotten = await mustAnswer(at)
  expect(forgotten.text).toBe(whole.text)
  expect(forgotten.stats.networkReads).toBeGreaterThan(20)
})

test.concurrent.for([true, false])(
  'bytes that are not the model’s, from the server (isolated: %s)',
  async (isolated, { onTestFinished }) => {
    const at = await openEnginePage({ isolated }, onTestFinished)
    const { server } = at
    server.faults = { path: expertFiles, flip: true }
    const { failure } = await visit(at)
    expect(failure).toMatchObject({ name: 'ExpertReadError', code: 'EXPERT_READ', known: true })
    expect(failure?.message).toContain('its bytes do not match their checksum')
    await at.page.reload()
    await engineIsThere(at.page)
    // Nothing of it was kept. A bit that is wrong once or twice costs no more than time.
    server.faults = { path: expertFiles, flip: true, times: 2 }
    const { text, stats } = await mustAnswer(at)
    expect(text).toMatch(/^Once upon a time/)
    expect(stats.networkReads).toBeGreaterThan(20)
    await at.page.reload()
    await engineIsThere(at.page)
    server.faults = { path: modelFiles, refuse: true }
    const again = await mustAnswer(at)
    expect([again.text, again.stats.networkReads]).toEqual([text, 0])
  },
)

test.concurrent('a resident part that is damaged on its way does not open, and is not kept', async ({
  onTestFinished,
}) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server } = at
  server.faults = { path: weights, flip: true }
  expect((await visit(at)).failure).toMatchObject({ name: 'ChecksumError', code: 'CHECKSUM_MISMATCH', known: true })
  await at.page.reload()
  await engineIsThere(at.page)
  server.faults = {}
  expect((await mustAnswer(at)).text).toMatch(/^Once upon a time/)
})

test.concurrent('weights that are not finite, in a folder without checksums: no text, but an error with its name', async ({
  onTestFinished,
}) => {
  const folder = temporaryFolder(onTestFinished)
  cpSync(demoModel, folder, { recursive: true, filter: path => !path.endsWith('moeflux.json') })
  await poisonExperts(folder, 3, 'up', 'scales', NAN)
  const at = await openEnginePage({ mounts: { '/model/': folder } }, onTestFinished)
  const { failure } = await visit(at)
  expect(failure).toMatchObject({ name: 'NonFiniteError', code: 'NON_FINITE_OUTPUT', known: true })
  expect(failure?.message).toMatch(/layer 3, experts? [\d, ]+, whose weights/)
})

test.concurrent('a folder without checksums: files are told apart by their tags, and it works offline too', async ({
  onTestFinished,
}) => {
  const folder = temporaryFolder(onTestFinished)
  cpSync(demoModel, folder, { recursive: true, filter: path => !path.endsWith('moeflux.json') })
  const at = await openEnginePage({ mounts: { '/model/': folder } }, onTestFinished)
  const { server, page } = at
  const first = await mustAnswer(at)
  server.faults = { path: modelFiles, refuse: true }
  await page.reload()
  await engineIsThere(page)
  const offline = await mustAnswer(at)
  expect(offline.text).toBe(first.text)
  expect(offline.stats.networkReads).toBe(0)
  // Another version of one layer's file: its experts alone are fetched again.
  server.faults = {}
  utimesSync(join(folder, 'packed_experts/layer_02.bin'), 1, 1)
  server.log.length = 0
  const changed = await mustAnswer(at)
  expect(changed.text).toBe(first.text)
  const fetched = server.log.filter(({ path, bytes }) => expertFiles.test(path) && bytes > 4096)
  const bytes = fetched.reduce((sum, each) => sum + each.bytes, 0)
  expect(bytes).toBe(changed.stats.networkBytes + changed.stats.spareBytes)
  expect(new Set(fetched.map(({ path }) => path))).toEqual(new Set(['/model/packed_experts/layer_02.bin']))
})

test.concurrent('two tabs at once: the second reads what the first has stored', async ({ onTestFinished }) => {
  const at = await openEnginePage({}, onTestFinished)
  const { server, browser } = at
  await mustAnswer(at, true)
  // The same page loaded again has to wait for its former self, and is no second tab.
  await at.page.reload()
  await engineIsThere(at.page)
  const first = await mustAnswer(at, true)
  expect(first.storage.cache).toBe('opfs')
  const page = await browser.open(server.origin)
  await engineIsThere(page)
  server.faults = { path: modelFiles, refuse: true }
  const second = await mustAnswer({ ...at, page })
  expect(second.text).toBe(first.text)
  expect(second.storage.cache).toBe('read-only')
  expect(second.stats).toMatchObject({ networkReads: 0, cacheReads: first.stats.cacheReads })
  expect(second.notices[0]).toContain('another tab has this model open')
})

/** All experts that were fetched because somebody wanted them, and perhaps those that lay between two of them. */
function expectStored(experts: number, { networkReads, spareReads }: { networkReads: number; spareReads: number }) {
  expect(experts).toBeGreaterThanOrEqual(networkReads)
  expect(experts).toBeLessThanOrEqual(networkReads + spareReads)
}
