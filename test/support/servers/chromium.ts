// A real headless browser for tests, by npm alone. Each launch has a profile of its own that lives until the browser is
// closed, so that browser storage and service workers survive a reload and a second page, and no test sees another's.
// On Linux x64 it is the Chromium of @sparticuz/chromium; elsewhere the installed Chrome. Where there is neither the
// tests fail instead of skipping themselves.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BrowserContext, chromium, type Page, type ViewportSize } from 'playwright-core'
import { unpackChromium } from '../../../src/lab/harness/unpackChromium.mjs'

export interface LaunchOptions {
  /** WebGPU on SwiftShader, a GPU in software. Without it pages find no adapter. */
  readonly gpu?: boolean
  readonly viewport?: ViewportSize
  readonly colorScheme?: 'light' | 'dark'
}

export interface Browser {
  readonly context: BrowserContext
  /** What went wrong in any page: uncaught errors and console errors, oldest first. */
  readonly problems: string[]
  /** Everything that pages and their workers wrote to the console. */
  readonly console: string[]
  /** A fresh page in the same profile, at `url` where one is given. */
  open(url?: string): Promise<Page>
  close(): Promise<void>
}

const gpuFlags = [
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--enable-features=Vulkan',
  // As in Node: SwiftShader takes seconds to compile a kernel that clears its workgroup memory first.
  '--enable-dawn-features=disable_workgroup_init',
]

// The profile is thrown away, so it may be written anywhere; a background tab must not be slowed down by its being one.
const flags = [
  '--no-sandbox',
  '--headless=new',
  '--disable-dev-shm-usage',
  '--disable-background-timer-throttling',
  '--disable-renderer-backgrounding',
  '--disable-backgrounding-occluded-windows',
  '--no-first-run',
  '--disable-component-update',
]

export async function launchChromium(options: LaunchOptions = {}): Promise<Browser> {
  const profile = mkdtempSync(join(tmpdir(), 'moeflux-chromium-'))
  const own = process.platform === 'linux' && process.arch === 'x64' ? unpackChromium() : null
  const context = await chromium.launchPersistentContext(profile, {
    ...(own === null
      ? { channel: 'chrome' }
      : { executablePath: own.executable, env: { ...process.env, ...own.environment } as Record<string, string> }),
    args: [...flags, ...(options.gpu ? gpuFlags : ['--disable-gpu'])],
    viewport: options.viewport ?? { width: 1280, height: 800 },
    colorScheme: options.colorScheme ?? 'light',
    locale: 'en-US', // not what this machine's LANG makes of it
    timeout: 60_000,
  })
  const problems: string[] = []
  const lines: string[] = []
  context.on('weberror', failure => problems.push(failure.error().stack ?? String(failure.error())))
  context.on('console', message => {
    lines.push(`${message.type()}: ${message.text()}`)
    if (message.type() === 'error') problems.push(message.text())
  })
  return {
    context,
    problems,
    console: lines,
    async open(url) {
      const page = await context.newPage()
      if (url !== undefined) await page.goto(url)
      return page
    },
    async close() {
      await context.close()
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
