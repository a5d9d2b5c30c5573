// The web UI as `moeflux serve` serves it, in a real browser: chat, branches, what is kept, and the engine view.
import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { encodeFrame } from '#moeflux/engine/frameCodec.js'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { findings } from './accessibility.js'
import { answered, ask, DOG_STORY, lastAnswer, ready, useSettings } from './uiPage.js'
import { arePicturesWanted, missingPictures, takePictures } from './uiPictures.js'

const GREEDY = { temperature: 0, maxTokens: 60 }

vi.setConfig({ testTimeout: 120_000 }) // a busy machine draws slowly

let server: ServerProcess
let browser: Browser
const foreign: string[] = [] // requests to anywhere else
beforeAll(async () => {
  ;[server, browser] = await Promise.all([startServer(['--expert-memory', '7MB']), launchChromium()])
  browser.context.on('request', request => {
    if (!request.url().startsWith(`${server.url}/`)) foreign.push(request.url())
  })
  // What Chromium says its language is where LANG is C: nothing that takes languages takes it.
  await browser.context.addInitScript(() => {
    Object.defineProperty(navigator, 'language', { get: () => 'en-US@posix' })
  })
})
afterAll(async () => {
  await browser?.close()
  await server?.stop()
})

async function openPage(settings: Record<string, unknown> = GREEDY): Promise<Page> {
  const page = await browser.open()
  await useSettings(page, settings)
  await page.goto(server.url)
  await ready(page)
  return page
}

describe('chat through the server', () => {
  test('answers, tells what it cost, and keeps it over a reload', async () => {
    const page = await openPage()
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, DOG_STORY)
    await answered(page)
    const text = await lastAnswer(page)
    const body = { messages: [{ role: 'user', content: DOG_STORY }], temperature: 0, max_tokens: 60 }
    const reply = await page.evaluate(async request => {
      const response = await fetch('v1/chat/completions', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(request),
      })
      return (await response.json()).choices[0].message.content as string
    }, body)
    expect(text.replace(/\s+/g, ' ').trim()).toBe(reply.replace(/\s+/g, ' ').trim())
    await expect
      .poll(() => page.locator('.usage').textContent())
      .toMatch(/^60 tokens · \d+ tok\/s · first after [\d.]+ s · \d+ in the prompt/)
    expect(await page.locator('.hint').textContent()).toContain('token limit')
    // The same speed as in the server's log: both are by the server's clock.
    const shown = Number(/· (\d+) tok\/s/.exec((await page.locator('.usage').textContent()) ?? '')?.[1])
    const logged = Number(/answer 60, decode ([\d.]+) tok\/s/.exec(server.log())?.[1])
    expect(shown).toBe(Math.round(logged))
    expect(await page.getByRole('meter', { name: 'Context' }).getAttribute('title')).toMatch(/^\d+ of [\d,]+ tokens/)
    await page.setViewportSize({ width: 320, height: 640 }) // the narrowest phone, or a page that is enlarged
    const send = await page.getByRole('button', { name: 'Send', exact: true }).boundingBox()
    expect((send?.x ?? 999) + (send?.width ?? 0)).toBeLessThanOrEqual(320)
    await page.setViewportSize({ width: 1280, height: 800 })

    // The engine was watched meanwhile, though nobody looked at it yet.
    expect(await page.locator('.answer-heat').getAttribute('aria-label')).toMatch(/^\d+ of 256 experts used/)
    await page.getByRole('tab', { name: 'Engine' }).click()
    await expect.poll(() => page.locator('.log').innerText()).toMatch(/Answer: \d+ tokens at \d+ tok\/s/)
    expect(await page.locator('.panel[aria-label=Speed] .chart-empty').count()).toBe(0)
    await page.getByRole('tab', { name: 'Chat' }).click()

    await page.getByLabel('Your message', { exact: true }).last().fill('not sent yet')
    await page.reload()
    await ready(page)
    await expect.poll(() => lastAnswer(page)).toBe(text)
    expect(await page.locator('#composer').inputValue()).toBe('not sent yet')
    await page.close()
  })

  test('begins with what the built-in model is, and with prompts that it follows', async () => {
    const page = await openPage()
    await page.getByText("It is a 21 MB toy that tells children's stories").waitFor()
    await page.getByRole('button', { name: 'Tell me a story about a girl named Mia' }).click()
    await answered(page)
    expect(await lastAnswer(page)).toContain('Mia')
    await page.close()
  })

  test('edits a message and answers again, each a branch of its own', async () => {
    const page = await openPage({ temperature: 0, maxTokens: 12 })
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, 'Tell me about a cat')
    await answered(page)
    const first = await lastAnswer(page)
    await page.locator('.message.user').first().hover()
    await page.getByRole('button', { name: 'Edit this message' }).click()
    await page.getByLabel('Edit your message').fill('Tell me about a big red truck')
    await page.keyboard.press('Enter') // as in the field for messages
    await answered(page)
    expect(await page.locator('.bubble').textContent()).toBe('Tell me about a big red truck')
    await page.getByRole('button', { name: 'Previous version' }).click()
    expect(await page.locator('.bubble').textContent()).toBe('Tell me about a cat')
    expect(await lastAnswer(page)).toBe(first)

    await page.getByRole('button', { name: 'Answer again' }).click()
    await page.getByText('2/2', { exact: true }).last().waitFor()
    await answered(page)
    expect(await lastAnswer(page)).toBe(first) // greedy
    await page.getByRole('button', { name: 'Previous answer' }).click()
    await page.getByText('1/2', { exact: true }).last().waitFor()
    await page.close()
  })

  test('stops an answer at once, and the server with it', async () => {
    const page = await openPage({ temperature: 2, topK: 0, topP: 1, maxTokens: 4000 })
    await page.getByRole('button', { name: 'New chat' }).click()
    // At random, an answer may end by itself before anyone can stop it.
    const stopped = page.getByText('Stopped.', { exact: true })
    for (let attempt = 0; attempt < 8 && (await stopped.count()) === 0; attempt++) {
      await ask(page, `${DOG_STORY}, number ${attempt}`)
      await page
        .getByRole('button', { name: 'Stop the answer' })
        .click({ timeout: 4000 })
        .catch(() => {})
      await answered(page)
    }
    expect(await stopped.count()).toBe(1)
    await server.idle()
    await page.close()
  })

  test('two tabs answer at once, and each sees what the other has kept', async () => {
    const settings = { temperature: 0, maxTokens: 40 }
    const [one, two] = await Promise.all([openPage(settings), openPage(settings)])
    for (const page of [one, two]) await page.getByRole('button', { name: 'New chat' }).click()
    await Promise.all([ask(one, 'Tell me about a blue bird'), ask(two, 'Tell me about a green frog')])
    await Promise.all([answered(one), answered(two)])
    expect(await lastAnswer(one)).not.toBe(await lastAnswer(two))
    await one.getByRole('button', { name: 'Tell me about a green frog', exact: true }).click()
    await expect.poll(() => lastAnswer(one)).toBe(await lastAnswer(two))
    await Promise.all([one.close(), two.close()])
  })

  test('renames, finds, exports, imports and deletes conversations', async () => {
    const page = await openPage({ temperature: 0, maxTokens: 5 })
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, 'A story about a gnarwhal')
    await answered(page)
    await page.getByRole('button', { name: 'More for A story about a gnarwhal' }).click()
    await page.getByRole('menuitem', { name: 'Rename' }).click()
    await page.getByLabel('Title of the conversation').fill('The owl')
    await page.keyboard.press('Enter')
    await page.getByLabel('Search conversations').fill('gnarwhal')
    await expect.poll(() => page.locator('.conversation').count()).toBe(1)

    await page.getByRole('button', { name: 'More for The owl' }).click()
    const download = page.waitForEvent('download')
    await page.getByRole('menuitem', { name: 'Export as JSON' }).click()
    const path = await (await download).path()
    expect(JSON.parse(readFileSync(path, 'utf8')).conversations[0].title).toBe('The owl')

    await page.getByRole('button', { name: 'More for The owl' }).click()
    await page.getByRole('menuitem', { name: 'Delete' }).click()
    await expect.poll(() => page.locator('.conversation').count()).toBe(0)
    const [notice, composer] = await Promise.all(['.notice', '.composer'].map(name => page.locator(name).boundingBox()))
    expect((notice?.y ?? 0) + (notice?.height ?? 0)).toBeLessThanOrEqual(composer?.y ?? 0)
    await page.getByLabel('File to import').setInputFiles(path)
    await expect.poll(() => page.locator('.conversation').count()).toBe(1)
    await page.close()
  })
})

describe('the engine view', () => {
  test('shows live routing, and numbers that equal /metrics', async () => {
    const page = await openPage({ temperature: 0, maxTokens: 30 })
    await page.getByRole('tab', { name: 'Both' }).click()
    await page.locator('.live.idle').waitFor()
    await page.getByRole('button', { name: 'New chat' }).click()
    await ask(page, 'Tell me about a yellow duck')
    await answered(page)
    await page.locator('.live.idle').waitFor()
    const shown = async (name: string) =>
      Number((await page.locator(`[data-counter=${name}]`).textContent())?.replaceAll(',', ''))
    const pairs = [
      ['tokens', 'moeflux_evaluated_tokens_total'],
      ['expertHits', 'moeflux_expert_hits_total'],
      ['expertMisses', 'moeflux_expert_misses_total'],
      ['bytesRead', 'moeflux_expert_bytes_read_total'],
      ['prefetchReads', 'moeflux_prefetch_reads_total'],
      ['prefetchHits', 'moeflux_prefetch_hits_total'],
      ['prefetchWastedBytes', 'moeflux_prefetch_wasted_bytes_total'],
      ['expertSlotsUsed', 'moeflux_expert_slots_used'],
    ]
    for (const [counter, metric] of pairs) {
      expect(await shown(counter), counter).toBe(await server.metric(metric))
    }
    expect(await page.locator('.log').innerText()).toMatch(/Answer: \d+ tokens at \d+ tok\/s/)
    const used = await page.locator('.heat-details').textContent()
    expect(used).toMatch(/^\d+ tokens watched: \d+ of 256 experts used/)

    await page.locator('.heat-map').focus()
    await page.keyboard.press('ArrowRight')
    await page.keyboard.press('ArrowDown')
    expect(await page.locator('.heat-details').textContent()).toMatch(/^Layer 1, linear attention · expert 0: /)
    await page.close()
  })
})

describe('the engine view of a GPU that does not hold all experts', () => {
  test('shows where experts are, where they were found and who computed them', async () => {
    const { stats } = await (await fetch(`${server.url}/engine`)).json()
    const tiers = {
      gpu: { slots: 80, used: 64, bytes: 0, hits: 700 },
      memory: { slots: 128, used: 128, bytes: 0, hits: 250 },
      disk: { hits: 50 },
      computedOnGpu: 720,
      computedOnCpu: 280,
      promotions: 41,
      uploads: 20,
      refills: 7,
    }
    const resident = new Uint8Array(256).fill(1, 0, 192)
    const counts = {
      sequence: 1,
      seconds: 0,
      promptTokens: 0,
      decodeTokens: 0,
      busySeconds: 0,
      stallSeconds: 0,
      bytesRead: 0,
    }
    const frame = { time: Date.now(), phase: 'idle', ...counts, phaseSeconds: {}, stats: { ...stats, tiers } } as const
    const data = encodeFrame({ ...frame, routed: new Uint32Array(256), resident })
    const page = await openPage({})
    const body = `event: frame\ndata: ${data}\n\n`
    await page.route('**/engine/events?*', route => route.fulfill({ contentType: 'text/event-stream', body }))
    await page.getByRole('tab', { name: 'Engine' }).click()
    const panel = page.getByLabel('Tiers')
    await panel.waitFor()
    const bars = await panel.locator('.shares').allInnerTexts()
    expect(bars.map(text => text.replace(/\s+/g, ' '))).toEqual([
      'Where they are GPU 64 64 of 80 slots memory alone 128 128 of 128 slots disk alone 64 25.0%',
      'Where tokens found theirs GPU 700 70.0% memory 250 25.0% disk 50 5.0%',
      'Who computed them GPU 720 72.0% processors 280 28.0%',
    ])
    expect(await panel.innerText()).toContain('41 because they are used often, 20 for prompts; read again')
    // Nothing has happened yet, which no axis could say.
    expect(await page.locator('.chart-empty').allInnerTexts()).toEqual([
      ...['No answer yet', 'No prompt yet', 'No token yet', 'No expert was looked up yet', 'Nothing was read lately'],
    ])
    if (arePicturesWanted('tiers')) await takePictures(page, 'tiers', async () => {}, panel)
    expect(missingPictures('tiers')).toEqual([])
    await page.close()
  })
})

describe('the page', () => {
  test('has headers that keep it to itself, and asks nobody else', async () => {
    const { headers } = await fetch(server.url)
    expect(headers.get('content-security-policy')).toMatch(/default-src 'self'.*object-src 'none'/)
    expect(headers.get('content-security-policy')).not.toContain('unsafe-inline')
    expect(headers.get('cross-origin-embedder-policy')).toBe('require-corp')
    const page = await openPage()
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(true)
    await page.close()
    expect(foreign).toEqual([])
    expect(browser.problems).toEqual([])
  })

  test('dialogs begin in their field and end in sight; keys for letters of a Mac stay letters', async () => {
    const page = await browser.open()
    await page.addInitScript(() => Object.defineProperty(navigator, 'platform', { value: 'MacIntel' }))
    await page.goto(server.url)
    await ready(page)
    await page.locator('#composer').focus()
    for (const key of ['Alt+C', 'Alt+E', 'Alt+N', 'Alt+S']) await page.keyboard.press(key)
    expect(await page.locator('dialog').count()).toBe(0)
    expect(await page.getByRole('tab', { selected: true }).innerText()).toBe('Chat')
    await page.keyboard.press('Control+Shift+S')
    const done = await page.getByRole('button', { name: 'Done' }).boundingBox()
    expect((done?.y ?? 9999) + (done?.height ?? 0)).toBeLessThanOrEqual(800)
    await page.keyboard.type('Be brief')
    await page.keyboard.press('Enter')
    expect(await page.getByLabel('System prompt of').inputValue()).toBe('Be brief\n')
    await page.close()
  })

  test.each(['light', 'dark'] as const)('has no serious accessibility finding in %s', async scheme => {
    const page = await openPage({ temperature: 0, maxTokens: 12 })
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' })
    await page.getByRole('button', { name: 'New chat' }).click()
    expect(await findings(page), 'welcome').toEqual([])
    await ask(page, 'Tell me about a kite')
    await answered(page)
    for (const [size, viewport] of Object.entries({ desktop: [1280, 800], phone: [390, 844] })) {
      await page.setViewportSize({ width: viewport[0], height: viewport[1] })
      for (const view of ['', 'engine']) {
        await page.evaluate(hash => void (location.hash = hash), view)
        if (view === 'engine') await page.locator('.live.idle').waitFor()
        expect(await findings(page), `${view || 'chat'} ${size}`).toEqual([])
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 })
    for (const key of ['Alt+S', 'Alt+M']) {
      await page.keyboard.press(key)
      await page.getByRole('dialog').waitFor()
      expect(await findings(page), key).toEqual([])
      await page.keyboard.press('Escape')
      await page.locator('dialog').waitFor({ state: 'detached' })
    }
    await page.close()
  })
})
