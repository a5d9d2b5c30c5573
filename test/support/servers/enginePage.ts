// A page that has `moeflux/browser` and nothing else, served as plain files without a bundler, beside the demo model.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { onTestFinished } from 'vitest'
import type * as Moeflux from '#moeflux/browser.js'
import { demoModel } from '../models/models.js'
import { repository, temporaryFolder } from '../models/packedFiles.js'
import { type Browser, type LaunchOptions, launchChromium } from './chromium.js'
import { RangeServer, type RangeServerOptions } from './rangeServer.js'

declare global {
  interface Window {
    moeflux: typeof Moeflux
    model: Moeflux.BrowserModel
    notices: string[]
  }
}

const html = `<!doctype html><meta charset="utf-8"><title>engine</title><script type="module">
  import * as moeflux from '/dist/browser.js'
  window.notices = []
  window.moeflux = moeflux
</script>`

export interface EnginePage {
  readonly server: RangeServer
  readonly browser: Browser
  readonly page: Page
}

/** `finished`: the test's own, where tests run at the same time. */
export async function openEnginePage(
  options: LaunchOptions & Partial<RangeServerOptions> = {},
  finished: (clean: () => void | Promise<void>) => void = onTestFinished,
): Promise<EnginePage> {
  const folder = temporaryFolder(finished)
  writeFileSync(join(folder, 'index.html'), html)
  const mounts = { '/': folder, '/dist/': join(repository, 'dist'), '/model/': demoModel, ...options.mounts }
  const server = await RangeServer.start({ mounts, isolated: options.isolated })
  finished(() => server.stop())
  const browser = await launchChromium(options)
  finished(() => browser.close())
  const page = await browser.open(server.origin)
  await engineIsThere(page)
  return { server, browser, page }
}

/** After every navigation. */
export async function engineIsThere(page: Page): Promise<void> {
  await page.waitForFunction(() => window.moeflux !== undefined)
}

/** Requests for the model's files only. */
export const modelFiles = /^\/model\//
export const expertFiles = /^\/model\/packed_experts\//
