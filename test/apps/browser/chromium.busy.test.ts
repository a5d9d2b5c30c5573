// The browser that all browser tests stand on: it starts, is isolated when the server says so, keeps its storage over
// pages, and finds a GPU in software only where it was asked for.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import { launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'

async function blankPage(isolated: boolean) {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'index.html'), '<!doctype html><title>blank</title>')
  const server = await RangeServer.start({ mounts: { '/': folder }, isolated })
  onTestFinished(() => server.stop())
  return server
}

test('runs WebGPU on SwiftShader, isolated, with storage that outlives a page', async () => {
  const server = await blankPage(true)
  const browser = await launchChromium({ gpu: true })
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  const found = await page.evaluate(async () => {
    const root = await navigator.storage.getDirectory()
    const file = await (await root.getFileHandle('kept', { create: true })).createWritable()
    await file.write('kept')
    await file.close()
    const adapter = await navigator.gpu?.requestAdapter()
    return { isolated: crossOriginIsolated, adapter: adapter?.info.architecture ?? null }
  })
  expect(found).toEqual({ isolated: true, adapter: 'swiftshader' })
  await page.close()
  const again = await browser.open(server.origin)
  const text = await again.evaluate(async () => {
    const root = await navigator.storage.getDirectory()
    return (await (await root.getFileHandle('kept')).getFile()).text()
  })
  expect(text).toBe('kept')
  expect(browser.problems).toEqual([])
})

test('without a GPU there is no adapter, and without the headers no shared memory', async () => {
  const server = await blankPage(false)
  const browser = await launchChromium()
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  const found = await page.evaluate(async () => ({
    shared: typeof SharedArrayBuffer,
    adapter: (await navigator.gpu?.requestAdapter().catch(() => null)) ?? null,
  }))
  expect(found).toEqual({ shared: 'undefined', adapter: null })
})
