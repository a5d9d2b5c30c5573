// Aborts, failed reads and deaths at places of the wasm workers' protocol, in a tab: a sample of what test/backends/wasm does in
// Node, with the same code.
import { rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Page } from 'playwright-core'
import { rolldown } from 'rolldown'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { repository } from '../../support/models/packedFiles.js'
import { packTwoLayers } from '../../support/models/twoLayerModel.js'
import { type Browser, launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'
import type { TabPositions } from '../../support/wasm/tabPositions.js'

vi.setConfig({ testTimeout: 150_000 })

declare global {
  interface Window {
    positions: TabPositions
  }
}

let folder: string
let server: RangeServer
let browser: Browser
let page: Page
beforeAll(async () => {
  folder = await packTwoLayers()
  const own = dirname(folder)
  const bundle = await rolldown({
    input: join(repository, 'test/support/wasm/tabPositions.ts'),
    platform: 'browser',
    external: /nodePlatform\.js$/, // which a tab never asks for
  })
  const { output } = await bundle.generate({ format: 'es', codeSplitting: false })
  writeFileSync(join(own, 'positions.js'), output[0].code)
  writeFileSync(
    join(own, 'index.html'),
    '<!doctype html><title>positions</title><script type="module" src="positions.js"></script>',
  )
  server = await RangeServer.start({
    mounts: { '/': own, '/dist/': join(repository, 'dist'), '/model/': folder },
    isolated: true,
  })
  browser = await launchChromium()
  page = await browser.open(server.origin)
  await page.waitForFunction(() => window.positions !== undefined)
})
afterAll(async () => {
  await browser?.close()
  await server?.stop()
  rmSync(dirname(folder), { recursive: true, force: true })
})

test.each([
  [1, 'baseline', 9],
  [2, 'relaxed', 9],
  [2, 'baseline', 17],
  [3, 'relaxed', 17],
] as const)('%i threads, %s: aborts and failed reads', async (threads, simd, stride) => {
  const { description, aborted, failed } = await page.evaluate(
    ({ threads, simd, stride }) => window.positions.trySome(threads, simd, stride),
    { threads, simd, stride },
  )
  expect(description).toBe(`wasm, ${threads} ${threads === 1 ? 'thread' : 'threads'}, ${simd} SIMD, fast`)
  expect(aborted).toBeGreaterThan(2)
  expect(failed).toBeGreaterThan(2)
})

test.each([
  [1, 0, 8],
  [2, 0, 21],
  [2, 1, 40],
])('of %i threads, worker %i fails', async (threads, worker, place) => {
  const { codes, failure } = await page.evaluate(
    ({ threads, worker, place }) => window.positions.loseWorker(threads, worker, place),
    { threads, worker, place },
  )
  expect(codes).toEqual(['DEVICE_LOST', 'DEVICE_LOST'])
  expect(failure).toContain('a compute worker died: injected failure; open the model again')
})
