// Pictures of the web UI for the documentation: made where they are missing, or anew with MOEFLUX_SCREENSHOTS=1.
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { postJson } from '../server/sse.js'
import { type Browser, launchChromium } from '../support/chromium.js'
import { repository } from '../support/packedFiles.js'
import { answered, ask, ready, useSettings } from './uiPage.js'

const FOLDER = join(repository, 'docs/images')
const SIZES = { desktop: { width: 1360, height: 860 }, phone: { width: 390, height: 844 } }
const SCHEMES = ['light', 'dark'] as const
const STORIES = ['Tell me a story about a little dog', 'Tell me a story about a girl and the big sea']
const files = ['chat', 'engine'].flatMap(view =>
  SCHEMES.flatMap(scheme => Object.keys(SIZES).map(size => `${view}-${scheme}-${size}.png`)),
)
const isWanted = process.env.MOEFLUX_SCREENSHOTS !== undefined || files.some(file => !existsSync(join(FOLDER, file)))

let server: ServerProcess
let browser: Browser
beforeAll(async () => {
  if (!isWanted) return
  mkdirSync(FOLDER, { recursive: true })
  // Half of the experts fit, so that there is something to stream.
  server = await startServer(['--expert-memory', '7MB'])
  browser = await launchChromium()
})
afterAll(async () => {
  await browser?.close()
  await server?.stop()
})

test('there is a picture of each view, in light and dark, on a desktop and a phone', async () => {
  if (isWanted) {
    const page = await browser.open()
    await useSettings(page, { temperature: 0.3, seed: 3, maxTokens: 220 })
    await page.setViewportSize(SIZES.desktop)
    await page.goto(server.url)
    await ready(page)
    for (const story of STORIES) {
      await ask(page, story)
      await answered(page)
    }
    await page.mouse.move(0, 0)
    await takePictures(page, 'chat')
    await page.evaluate(() => void (location.hash = 'engine'))
    await page.locator('.live.idle').waitFor()
    for (const story of STORIES) {
      const messages = [{ role: 'user', content: story }]
      const url = `${server.url}/v1/chat/completions`
      await (await postJson(url, { messages, max_tokens: 300, temperature: 1 })).json()
      await page.waitForTimeout(800)
    }
    await takePictures(page, 'engine')
  }
  for (const file of files) expect(existsSync(join(FOLDER, file)), file).toBe(true)
}, 180_000)

async function takePictures(page: Page, view: string): Promise<void> {
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport)
    for (const scheme of SCHEMES) {
      await page.emulateMedia({ colorScheme: scheme })
      await page.waitForTimeout(150)
      await page.screenshot({ path: join(FOLDER, `${view}-${scheme}-${size}.png`) })
    }
  }
  await page.setViewportSize(SIZES.desktop)
}
