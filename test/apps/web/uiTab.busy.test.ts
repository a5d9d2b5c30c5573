// The model in the tab, as a visitor of a static site gets it: written by `moeflux web`, served by a host that knows nothing
// of moeflux, loaded by a click, and there again without a network. And from a server that asks for a key.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { demoModelPath, openModel } from '#moeflux/index.js'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'
import { moeflux } from '../cli/moeflux.js'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { answered, ask, DOG_STORY, lastAnswer, ready, useSettings } from './uiPage.js'

const TOKENS = 40
const TOKENS_ON_GPU = 4 // an emulated one takes its time for each
const SETTINGS = { temperature: 0, maxTokens: TOKENS }
const SLOW = 120_000

let browser: Browser
let site: RangeServer
let folder: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'moeflux-site-'))
  const { code, stderr } = await moeflux(['web', '--out', folder])
  expect(stderr).toMatch(/^wrote .* with demo/)
  expect(code).toBe(0)
  site = await RangeServer.start({ mounts: { '/somewhere/': folder }, isolated: false })
  browser = await launchChromium()
})
afterAll(async () => {
  await browser?.close()
  await site?.stop()
  rmSync(folder, { recursive: true, force: true })
})

const load = (page: Page) => page.getByRole('button', { name: /^Run demo in this tab/ }).click()
/** The service worker isolates the page by loading it once more; keys are heard when the page shows itself. */
async function isolated(page: Page): Promise<void> {
  await page.waitForFunction(() => crossOriginIsolated && navigator.serviceWorker.controller !== null)
  await page.locator('.model-button').waitFor()
}
const plain = (text: string) => text.replace(/\s+/g, ' ').trim()

describe('a static site', () => {
  let story: string

  test(
    'loads the model into the tab, answers as Node does, and shows the engine',
    async () => {
      const model = await openModel(demoModelPath(), { backend: 'wasm', threads: 1 })
      const { text } = await model.generate({ prompt: DOG_STORY, temperature: 0, maxTokens: TOKENS })
      await model.close()

      const page = await browser.open()
      await useSettings(page, SETTINGS)
      await page.goto(`${site.origin}/somewhere/`)
      await isolated(page)
      await load(page)
      await ready(page)
      expect(await page.locator('.model-button').innerText()).toContain('in this tab')

      await page.evaluate(watchLongTasks)
      await ask(page, DOG_STORY)
      await answered(page, SLOW)
      story = await lastAnswer(page)
      expect(plain(story)).toBe(plain(text))
      // A busy machine may put the page aside in the middle of a short task: then an answer proves nothing.
      let long = await page.evaluate(takeLongTasks)
      for (let run = 0; run < 5 && long.length > 0; run++) {
        await ask(page, DOG_STORY)
        await answered(page, SLOW)
        long = await page.evaluate(takeLongTasks)
      }
      expect(long, 'tasks of the page over 50 ms while generating').toEqual([])

      await page.evaluate(() => void (location.hash = 'engine'))
      await page.locator('.live.idle').waitFor()
      const evaluated = await page.locator('[data-counter=tokens]').textContent()
      expect(Number(evaluated)).toBeGreaterThan(TOKENS)
      expect(await page.locator('.engine-head p').textContent()).toMatch(/^wasm, \d+ threads?, .*8 layers × 32 experts/)

      await page.keyboard.press('Alt+M')
      await page.getByText(/kept on this device, \d+ experts among it/).waitFor()
      await page.close()
    },
    SLOW,
  )

  test(
    'is there again without a network: page, model and conversation',
    async () => {
      await site.stop()
      try {
        const page = await browser.open()
        await useSettings(page, SETTINGS)
        await page.goto(`${site.origin}/somewhere/`)
        await ready(page)
        await ask(page, DOG_STORY)
        await answered(page, SLOW)
        expect(await lastAnswer(page)).toBe(story)
        expect(await page.locator('.conversation').count()).toBe(2)

        // An expert that is not here cannot come: one clear message, and a way on. Neighbours came along with those of the
        // story, maybe all there are, so what is stored goes first.
        await page.keyboard.press('Alt+M')
        await page.getByRole('button', { name: 'Clear the cache' }).click()
        await page.getByText(/Nothing kept on this device/).waitFor()
        await page.keyboard.press('Escape')
        await page.locator('dialog').waitFor({ state: 'detached' })
        await ask(page, 'Zebras quarrel about quantum physics in Japan 42 times')
        await page.locator('.failure').waitFor({ timeout: SLOW })
        expect(await page.locator('.failure p').textContent()).toMatch(
          /^A part of the model .*expert \d+ of layer \d+.* is not on this device yet/,
        )
        await site.start()
        await page.getByRole('button', { name: 'Try again' }).click()
        await answered(page, SLOW)
        await expect.poll(() => page.locator('.failure').count()).toBe(0)
        await page.close()
      } finally {
        await site.stop()
        await site.start()
      }
    },
    SLOW,
  )

  test(
    'answers on WebGPU where the settings say so',
    async () => {
      const model = await openModel(demoModelPath(), { backend: 'wasm', threads: 1 })
      const { text } = await model.generate({ prompt: DOG_STORY, temperature: 0, maxTokens: TOKENS_ON_GPU })
      await model.close()

      const withGpu = await launchChromium({ gpu: true })
      try {
        const page = await withGpu.open()
        await useSettings(page, { temperature: 0, maxTokens: TOKENS_ON_GPU })
        await page.goto(`${site.origin}/somewhere/`)
        await isolated(page)
        await page.keyboard.press('Alt+S')
        await page.getByLabel('Models in this tab run on').selectOption('webgpu')
        await page.getByRole('button', { name: 'Done' }).click()
        await load(page)
        await ready(page, SLOW)
        await ask(page, DOG_STORY)
        await answered(page, SLOW)
        expect(plain(await lastAnswer(page))).toBe(plain(text))
        await page.evaluate(() => void (location.hash = 'engine'))
        await expect.poll(() => page.locator('.engine-head p').textContent()).toMatch(/^webgpu on swiftshader/)
      } finally {
        await withGpu.close()
      }
    },
    SLOW,
  )

  test(
    'a host that sends whole files only is told, and the model answers all the same',
    async () => {
      const page = await browser.open()
      await page.goto(`${site.origin}/somewhere/`)
      await ready(page)
      await page.keyboard.press('Alt+M')
      // The tab of the test before may not have let go of the stored model when this one opened it.
      await page.getByRole('button', { name: 'Unload' }).click()
      await page.getByRole('button', { name: 'Load', exact: true }).click()
      await page.getByRole('button', { name: 'Clear the cache' }).click()
      await page.getByText(/Nothing kept on this device/).waitFor()
      await page.getByRole('button', { name: 'Unload' }).click()
      site.faults = { path: /model_weights\.bin|packed_experts/, noRanges: true }
      await page.getByRole('button', { name: 'Load', exact: true }).click()
      await page.getByText('the host sends only whole files').waitFor()
      await ready(page)
      await page.keyboard.press('Escape')
      await page.locator('dialog').waitFor({ state: 'detached' })
      await ask(page, DOG_STORY)
      await answered(page, SLOW)
      expect(plain(await lastAnswer(page)).slice(0, 20)).toBe(story.slice(0, 20))
      site.faults = {}
      await page.close()
    },
    SLOW,
  )
})

describe('a server with a key', () => {
  let server: ServerProcess
  beforeAll(async () => {
    server = await startServer([], { MOEFLUX_API_KEY: 'secret' })
  })
  afterAll(() => server.stop())

  test(
    'gives its model to the tab',
    async () => {
      const page = await browser.open()
      await useSettings(page, { temperature: 0, maxTokens: 8 })
      await page.goto(server.url)
      await page.getByLabel('Key', { exact: true }).fill('secret')
      await page.getByRole('button', { name: 'Use this key' }).click()
      await ready(page)
      await page.keyboard.press('Alt+M')
      await page.getByRole('button', { name: 'Load', exact: true }).click()
      await page.getByLabel('demo in this tab').getByText('In use').waitFor({ timeout: SLOW })
      await page.keyboard.press('Escape')
      await page.locator('dialog').waitFor({ state: 'detached' })
      const before = await server.metric('moeflux_evaluated_tokens_total')
      await ask(page, 'Tell me about a snail')
      await answered(page, SLOW)
      expect(await lastAnswer(page)).not.toBe('')
      expect(await server.metric('moeflux_evaluated_tokens_total')).toBe(before)
      await page.close()
    },
    SLOW,
  )
})

function takeLongTasks(): number[] {
  return (globalThis as unknown as { longTasks: number[] }).longTasks.splice(0)
}

/** Collects tasks of the page's own thread that take longer than 50 ms. */
function watchLongTasks(): void {
  const longTasks: number[] = []
  Object.assign(globalThis, { longTasks })
  new PerformanceObserver(list => {
    for (const { duration } of list.getEntries()) longTasks.push(Math.round(duration))
  }).observe({ type: 'longtask' })
}
