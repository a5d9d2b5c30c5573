// Models through the page: a server with an empty store and a hub look-alike beside it. One is pulled in the dialog, stopped
// on the way, taken up again, loaded and asked. The same by HTTP, and who may not.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { findWellKnown } from '#moeflux/model/wellKnownModels.js'
import { type HubServer, startHub } from '../../files/hub/hubServer.js'
import { demoSource, temporaryFolder } from '../../support/models/packedFiles.js'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { type ServerProcess, startServer } from '../server/serverProcess.js'
import { postJson } from '../server/sse.js'
import { findings } from './accessibility.js'
import { answered, ask, lastAnswer, ready, useSettings } from './uiPage.js'
import { arePicturesWanted, missingPictures, takePictures } from './uiPictures.js'

const SHORT = 'qwen3.5-4b'
const { hub: ID = '', title = '' } = findWellKnown(SHORT) ?? {}
const files = new Map(readdirSync(demoSource).map(name => [name, readFileSync(join(demoSource, name))]))
const weights = [...files].filter(([name]) => name.endsWith('.safetensors'))
const MEGABYTES = Math.round(weights.reduce((sum, [, { length }]) => sum + length, 0) / 1e6)

vi.setConfig({ testTimeout: 120_000 }) // a busy machine draws slowly

const home = temporaryFolder(afterAll)
let hub: HubServer
let server: ServerProcess
let browser: Browser
beforeAll(async () => {
  hub = await startHub(ID, files)
  const env = { MOEFLUX_HOME: home, HF_ENDPOINT: hub.url, HF_TOKEN: '' }
  ;[server, browser] = await Promise.all([startServer([], env), launchChromium()])
})
afterAll(async () => {
  await browser?.close()
  await server?.stop()
  await hub?.close()
})

/** Lets the hub send so many more bytes; the returned function lets it go on. */
function holdAfter(bytes: number): () => void {
  let goOn = () => {}
  const held = new Promise<void>(resolve => (goOn = resolve))
  const before = hub.sent()
  hub.behaviour.hold = sent => (sent - before < bytes ? null : held)
  return () => {
    hub.behaviour.hold = () => null
    goOn()
  }
}

async function openDialog(): Promise<Page> {
  const page = await browser.open()
  await useSettings(page, { temperature: 0, maxTokens: 6 })
  await page.goto(server.url)
  await ready(page)
  await page.locator('.model-button').click()
  return page
}

const hubBody = async () => await (await fetch(`${server.url}/hub`)).json()

describe('the model dialog', () => {
  test('brings a well-known model, stops on the way, goes on, loads it and asks it', async () => {
    const page = await openDialog()
    const more = page.getByRole('region', { name: 'More models' })
    const row = more.getByRole('listitem').filter({ hasText: title })
    // Size and fit as `inspect` has them, before anything is asked of the hub.
    expect(await row.innerText()).toMatch(/qwen3\.5-4b · 2\.4 GB · (fits in memory|needs)/)
    expect(hub.requests).toEqual([])
    await page.getByRole('button', { name: `Get ${title}` }).click()
    await page.getByText(`${MEGABYTES} MB, about 2 s at 100 Mbit/s`).waitFor()

    const release = holdAfter(9_000_000)
    await page.getByRole('button', { name: 'Download' }).click()
    await expect
      .poll(() => more.innerText(), { timeout: 20_000 })
      .toMatch(new RegExp(`Downloading · [89]\\.\\d MB of ${MEGABYTES} MB`))
    expect(await findings(page)).toEqual([])
    if (arePicturesWanted('models')) await takePictures(page, 'models')
    await more.getByRole('button', { name: 'Stop' }).click()
    await page.getByText(new RegExp(`^Stopped at \\d\\.\\d MB of ${MEGABYTES} MB; the download is kept$`)).waitFor()
    release()
    await more.getByRole('button', { name: 'Go on' }).click()
    const own = page.getByRole('region', { name: 'On the server' }).getByRole('listitem').filter({ hasText: ID })
    await own.getByRole('button', { name: 'Use' }).click({ timeout: 30_000 })
    await own.getByText('In use').waitFor()
    await expect.poll(() => own.innerText(), { timeout: 30_000 }).toContain('in memory')
    expect(await row.count()).toBe(0) // no longer among those to be had
    await page.getByRole('button', { name: 'Done' }).click()
    await ask(page, 'Hello')
    await answered(page)
    expect((await lastAnswer(page)).length).toBeGreaterThan(0)
    expect(await page.locator('.usage').getAttribute('title')).toBe(`${ID} · on the server`)
    await page.reload()
    await ready(page)
    expect(await page.locator('.model-name').innerText()).toBe(ID) // it stays the chosen one
    await page.close()
    expect(missingPictures('models')).toEqual([])
  })

  test('lists the models that are downloaded soonest first, and says which the disk has no room for', async () => {
    const page = await browser.open()
    await page.route('**/hub', async route => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...(await response.json()), free_disk: 15e9 } })
    })
    await page.goto(server.url)
    await ready(page)
    await page.locator('.model-button').click()
    const more = page.getByRole('region', { name: 'More models' })
    const rows = more.getByRole('listitem')
    expect(await rows.first().innerText()).toMatch(/Qwen3\.5-0\.8B[\s\S]*Get/)
    await more.getByRole('button', { name: /^Show \d+ more$/ }).click()
    const large = rows.filter({ hasText: 'Qwen3.5-397B-A17B' })
    expect(await large.innerText()).toMatch(/^Qwen3.5-397B-A17B\s+qwen3.5-397b · needs 223 GB of disk, 15 GB are free$/)
    expect(await rows.last().innerText()).toBe(await large.innerText())
    expect(await findings(page)).toEqual([])
    await page.getByLabel('Another model of the hub').fill(ID)
    await page.route('**/hub/forecast', async route => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...(await response.json()), download_bytes: 1e9, disk_bytes: 16e9 } })
    })
    await page.getByRole('button', { name: 'Look' }).click()
    await page.getByText('This model needs 16 GB of disk, 15 GB are free.').waitFor()
    expect(await page.getByRole('button', { name: 'Download' }).count()).toBe(0)
    await page.close()
  })

  test('knows a name of the store, and guesses at one of none', async () => {
    const page = await openDialog()
    const field = page.getByLabel('Another model of the hub')
    await field.fill(SHORT)
    await page.getByRole('button', { name: 'Look' }).click()
    await page.getByText('The server has this model in its store.').waitFor()
    await page.getByRole('button', { name: 'Add it' }).click()
    await page.getByRole('button', { name: 'Add it' }).waitFor({ state: 'detached' })
    await field.fill('gpt oss')
    await page.getByRole('button', { name: 'Look' }).click()
    await page.getByRole('alert').filter({ hasText: 'did you mean gpt-oss?' }).waitFor()
    await page.close()
  })

  test('says what is wrong with a name, and stays usable', async () => {
    const page = await openDialog()
    await page.getByLabel('Another model of the hub').fill('nobody/nothing')
    await page.getByRole('button', { name: 'Look' }).click()
    await page.getByRole('alert').filter({ hasText: 'nobody/nothing' }).waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    expect(await page.getByRole('alert').filter({ hasText: 'nobody' }).count()).toBe(0)
    await page.close()
  })
})

describe('models over HTTP', () => {
  test('a second model does not take the name of the first: any other name still means that one', async () => {
    const chat = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 }
    const answer = async (model: string) =>
      (await (await postJson(`${server.url}/v1/chat/completions`, { ...chat, model })).json()).model
    expect([await answer('whatever'), await answer(ID)]).toEqual(['whatever', ID])
    const { models } = await hubBody()
    expect(models.map(({ id }: { id: string }) => id)).toEqual(['demo', ID])
  })

  test('ollama’s pull tells its progress in lines and ends with success', async () => {
    const lines = (await (await postJson(`${server.url}/api/pull`, { model: SHORT })).text()).trim().split('\n')
    expect(JSON.parse(lines[0])).toEqual({ status: 'pulling manifest' })
    expect(JSON.parse(lines.at(-1) ?? '')).toEqual({ status: 'success' })
    const failed = await postJson(`${server.url}/api/pull`, { model: 'nobody/nothing', stream: false })
    expect([failed.status, (await failed.json()).error]).toEqual([500, expect.stringContaining('nobody/nothing')])
  })

  test('a foreign page may not ask for any of it', async () => {
    const response = await fetch(`${server.url}/hub/pull`, {
      method: 'POST',
      headers: { origin: 'https://evil.example', 'content-type': 'application/json' },
      body: JSON.stringify({ model: SHORT }),
    })
    expect(response.status).toBe(403)
  })
})
