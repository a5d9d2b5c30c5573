// Records the README's picture: the built-in model answers in the page of `moeflux serve`, with the engine view next to it.
//   node src/lab/pictures/recordReadme.mjs [docs/images/answer.png]
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'
import { startServer } from '../harness/serverProcess.mjs'
import { unpackChromium } from '../harness/unpackChromium.mjs'
import { decodePng, encodeAnimation } from './animatedPng.mjs'

const PROMPT = 'Tell me a story about a girl named Mia'
const SETTINGS = { temperature: 0.7, seed: 2 }
const VIEW = { width: 1600, height: 742 }
const SIDEBAR = 272 // pixels, left out
const SLOWER = 4 // than it ran: the answer takes about a second
const HOLD_MS = 5000 // the whole answer, before it starts again
const MAX_BYTES = 1e6

const [target = 'docs/images/answer.png'] = process.argv.slice(2)
const folder = mkdtempSync(join(tmpdir(), 'moeflux-record-'))
// Half of the experts fit, so that there is something to stream.
const server = await startServer({ folder, args: ['--model', 'demo', '--expert-memory', '7MB'] })
const { executable, environment } = unpackChromium()
const browser = await chromium.launch({
  executablePath: executable,
  env: { ...process.env, ...environment },
  args: ['--no-sandbox', '--headless=new', '--disable-gpu', '--disable-dev-shm-usage'],
})
try {
  const frames = await record(`http://127.0.0.1:${server.port}/`)
  const bytes = encodeAnimation(frames)
  if (bytes.length > MAX_BYTES) throw new Error(`${bytes.length} bytes, want at most ${MAX_BYTES}: take fewer frames`)
  writeFileSync(target, bytes)
  console.log(`${target}: ${frames.length} frames, ${(bytes.length / 1e3).toFixed(0)} KB`)
} finally {
  await browser.close()
  await server.stop(5000)
  rmSync(folder, { recursive: true, force: true })
}

async function record(url) {
  const page = await browser.newPage({ viewport: VIEW, locale: 'en-US', colorScheme: 'light' })
  await page.addInitScript(text => localStorage.setItem('moeflux.settings', text), JSON.stringify(SETTINGS))
  await page.goto(url)
  await page.locator('.model-button .state.ready').waitFor()
  await page.keyboard.press('Alt+b')
  const field = page.getByLabel('Your message', { exact: true }).last()
  await field.click()
  await page.getByText('Routing, layer by expert').waitFor()
  const shots = []
  const session = await page.context().newCDPSession(page)
  session.on('Page.screencastFrame', ({ data, metadata, sessionId }) => {
    shots.push({ at: metadata.timestamp * 1000, png: Buffer.from(data, 'base64') })
    void session.send('Page.screencastFrameAck', { sessionId }).catch(() => {})
  })
  await session.send('Page.startScreencast', { format: 'png' })
  await field.fill(PROMPT)
  await page.waitForTimeout(400)
  await field.press('Enter')
  await page.locator('.answer-heat').waitFor() // comes with the last frame
  await page.waitForTimeout(400)
  await session.send('Page.stopScreencast')
  shots.sort((a, b) => a.at - b.at)
  return shots.map(({ at, png }, i) => {
    const next = shots[i + 1]?.at
    return { ...withoutSidebar(decodePng(png)), ms: next === undefined ? HOLD_MS : (next - at) * SLOWER }
  })
}

function withoutSidebar({ width, height, pixels }) {
  const rest = new Uint8Array((width - SIDEBAR) * height * 3)
  for (let y = 0; y < height; y++) {
    rest.set(pixels.subarray((y * width + SIDEBAR) * 3, (y + 1) * width * 3), y * (width - SIDEBAR) * 3)
  }
  return { width: width - SIDEBAR, height, pixels: rest }
}
