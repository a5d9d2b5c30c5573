// The engine in a real browser: the demo model over HTTP ranges gives the text that it gives in Node, on every backend
// that a tab can have; only what is needed travels; what came once is there without the server.
import { beforeAll, describe, expect, test } from 'vitest'
import { openModel } from '#moeflux/index.js'
import { demoModel } from '../../support/models/models.js'
import { engineIsThere, expertFiles, modelFiles, openEnginePage } from '../../support/servers/enginePage.js'

// Few words, and few tokens on a GPU: where it is emulated each of them takes a quarter of a second.
const asked = { prompt: 'A cat', temperature: 0 }
const TOKENS_ON_GPU = 5

const threads = {
  backend: 'wasm',
  isolated: true,
  gpu: false,
  tokens: 32,
  description: /^wasm, \d+ threads?, /,
} as const
const places = [
  { place: 'wasm threads', ...threads },
  { place: 'wasm without shared memory', ...threads, isolated: false, description: /^wasm, 1 thread, / },
  { place: 'webgpu', backend: 'webgpu', isolated: true, gpu: true, tokens: TOKENS_ON_GPU, description: /^webgpu/ },
] as const

const textsOfNode = new Map<number, string>() // by how many tokens were asked for

beforeAll(async () => {
  const model = await openModel(demoModel, { backend: 'wasm', precision: 'exact', threads: 1 })
  for (const maxTokens of new Set(places.map(({ tokens }) => tokens))) {
    textsOfNode.set(maxTokens, (await model.generate({ ...asked, maxTokens })).text)
  }
  await model.close()
})

describe.each(places)('$place', ({ backend, isolated, gpu, tokens, description }) => {
  test('answers as Node does, fetches what it needs once, and works without the server', {
    timeout: 300_000,
  }, async () => {
    const request = { ...asked, maxTokens: tokens }
    const expected = textsOfNode.get(tokens)
    const { server, browser, page } = await openEnginePage({ isolated, gpu })
    const first = await page.evaluate(
      async ({ backend, request }) => {
        const progress: number[] = []
        const model = await window.moeflux.openModel('/model/', {
          backend,
          precision: 'exact',
          onProgress: ({ phase, loaded, total }) => {
            if (phase.includes('weights')) progress.push(loaded / total)
          },
        })
        window.model = model
        let cells = 0
        const stop = model.watch(({ routed }) => {
          cells = routed.length
        })
        const { text } = await model.generate(request)
        stop()
        const { info } = model
        // A wrong guess may still be on its way.
        let stats = await model.stats()
        const come = () => stats.networkReads + stats.cacheReads
        for (let i = 0; i < 200 && come() < stats.expertMisses + stats.prefetchReads; i++) {
          await new Promise(resolve => setTimeout(resolve, 20))
          stats = await model.stats()
        }
        return {
          text,
          info,
          cells,
          stats,
          storage: await model.storage(),
          progress: progress.at(-1),
        }
      },
      { backend, request },
    )
    expect(first.text).toBe(expected)
    expect(first.info.backendDescription).toMatch(description)
    expect(first.progress).toBeGreaterThan(0.9)
    expect(first.cells).toBe(first.storage.experts)

    // Only what is needed: each expert that was routed to or read ahead once, neighbours with one request, and few between.
    const { expertMisses, prefetchReads, networkBytes, networkReads, cacheReads, spareReads } = first.stats
    const { expertBytes } = first.info
    expect(networkReads + cacheReads).toBe(expertMisses + prefetchReads)
    expect(cacheReads).toBeLessThanOrEqual(spareReads)
    expect(spareReads).toBeLessThanOrEqual(networkReads / 4)
    expect(networkBytes).toBe(networkReads * expertBytes)
    expect(server.bytesOf(expertFiles)).toBe(networkBytes + spareReads * expertBytes)
    expect(server.log.filter(({ path }) => expertFiles.test(path)).length).toBeLessThan(networkReads)
    expect(server.bytesOf(modelFiles)).toBe(first.stats.fetchedBytes)
    expect(networkReads).toBeLessThan(first.storage.experts)
    expect(first.storage.cache).toBe('opfs')
    // One that lay between two others may have been on its way for somebody already.
    expect(first.storage.expertsCached).toBeGreaterThanOrEqual(networkReads)
    expect(first.storage.expertsCached).toBeLessThanOrEqual(networkReads + spareReads)
    expect(first.storage.cachedBytes).toBeGreaterThan(first.storage.expertsCached * expertBytes)

    expect(await page.evaluate(longTasks, request), 'tasks of the page over 50 ms while generating').toEqual([])

    // A second visit without the server: the same answer, and nothing fetched.
    server.faults = { path: modelFiles, refuse: true }
    server.log.length = 0
    await page.reload()
    await engineIsThere(page)
    const second = await page.evaluate(
      async ({ backend, request }) => {
        const notices: string[] = []
        const onNotice = (line: string) => notices.push(line)
        // Without reading ahead: a guess of this visit may be of an expert that the first did not store.
        const options = { backend, precision: 'exact', prefetch: false, onNotice } as const
        window.model = await window.moeflux.openModel('/model/', options)
        const { text } = await window.model.generate(request)
        return { text, notices, stats: await window.model.stats() }
      },
      { backend, request },
    )
    expect(second.text).toBe(expected)
    expect(second.stats.networkBytes).toBe(0)
    expect(second.stats.cacheReads).toBe(second.stats.expertMisses)
    expect(second.notices.join('\n')).toContain('the stored copy of the model is used')
    expect(server.log.filter(({ path }) => modelFiles.test(path))).toEqual([])
    // Requests that were refused are the browser's own errors; there are no others.
    expect(browser.problems.filter(line => !line.includes('ERR_'))).toEqual([])
  })
})

describe('a GPU that is to hold some of the experts', () => {
  test.each([true, false])(
    'answers as Node does, with workers beside it where the page is isolated: %s',
    {
      timeout: 300_000,
    },
    async isolated => {
      const request = { ...asked, maxTokens: TOKENS_ON_GPU }
      const expected = textsOfNode.get(TOKENS_ON_GPU)
      const { browser, page } = await openEnginePage({ isolated, gpu: true })
      const { text, notices, tiers } = await page.evaluate(async request => {
        const notices: string[] = []
        const onNotice = (line: string) => notices.push(line)
        const memory = { gpuMemory: '4MB', expertMemory: '6MB', threads: 1 }
        const options = { backend: 'webgpu', precision: 'exact', cache: 'memory', ...memory, onNotice } as const
        const model = await window.moeflux.openModel('/model/', options)
        const { text } = await model.generate(request)
        const { tiers } = await model.stats()
        await model.close()
        return { text, notices, tiers }
      }, request)
      expect(text).toBe(expected)
      // Whether it pays is measured when the model is opened; where nothing can be shared there is nothing to measure.
      const measured = notices.filter(line => line.includes('experts that are not on the GPU')).join()
      if (!isolated) expect({ measured, tiers }).toEqual({ measured: '', tiers: null })
      else expect(measured).toMatch(tiers === null ? /are sent to it/ : /1 thread compute/)
      if (tiers !== null) expect(tiers.computedOnCpu).toBeGreaterThan(0)
      expect(browser.problems).toEqual([])
    },
  )
})

/** Runs in the page. */
async function longTasks(request: { prompt: string; maxTokens: number; temperature: number }): Promise<number[]> {
  let long: number[] = []
  // A busy machine may put the page aside in the middle of a short task: such a run proves nothing.
  for (let run = 0; run === 0 || (run < 3 && long.length > 0); run++) {
    long = []
    const observer = new PerformanceObserver(list => long.push(...list.getEntries().map(task => task.duration)))
    observer.observe({ type: 'longtask' })
    await window.model.generate({ ...request, prompt: `Story ${run}.` })
    long.push(...observer.takeRecords().map(task => task.duration))
    observer.disconnect()
  }
  return long
}
