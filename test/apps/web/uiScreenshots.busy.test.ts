// Pictures of the chat and the engine view for the documentation, with the built-in model at work.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { postJson } from '../server/sse.js'
import { answered, ask, ready, useSettings } from './uiPage.js'
import { arePicturesWanted, missingPictures, SIZES, takePictures } from './uiPictures.js'

const STORIES = ['Tell me a story about a princess', 'Tell me a story about a girl named Mia']
const isWanted = arePicturesWanted('chat', 'engine')

let server: ServerProcess
let browser: Browser
beforeAll(async () => {
  if (!isWanted) return
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
    await page
      .locator('.answer-heat')
      .nth(STORIES.length - 1)
      .waitFor() // comes with the last frame
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
  expect(missingPictures('chat', 'engine')).toEqual([])
}, 180_000)
