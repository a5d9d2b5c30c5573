// A page that installed the package and builds with Vite as it comes, without a line of configuration.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rolldown } from 'rolldown'
import { build } from 'vite'
import { expect, onTestFinished, test } from 'vitest'
import { demoModel } from '../../support/models/models.js'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'

test('a page built by Vite finds its workers and kernels', { timeout: 120_000 }, async () => {
  const folder = temporaryFolder()
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(repository, join(folder, 'node_modules/moeflux'), 'junction')
  writeFileSync(join(folder, 'index.html'), '<!doctype html><script type="module" src="./main.js"></script>')
  writeFileSync(
    join(folder, 'main.js'),
    `import { openModel, FetchError } from 'moeflux/browser'
     window.answer = async () => {
       const missing = await openModel('/nothing/', { backend: 'wasm' }).catch(error => error)
       const model = await openModel('/model/', { backend: 'wasm' })
       const { text } = await model.generate({ prompt: 'Hi', maxTokens: 5, temperature: 0, responseFormat: { type: 'json_object' } })
       await model.close()
       return { text, missing: missing.code, name: missing.name, other: missing instanceof FetchError }
     }`,
  )
  await build({ root: folder, logLevel: 'error', configFile: false })
  const mounts = { '/': join(folder, 'dist'), '/model/': demoModel }
  const server = await RangeServer.start({ mounts })
  onTestFinished(() => server.stop())
  const browser = await launchChromium()
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  await page.waitForFunction('window.answer')
  const seen = (await page.evaluate('window.answer()')) as { text: string }
  expect(seen).toMatchObject({ missing: 'MODEL_NOT_FOUND', name: 'ModelNotFoundError', other: false })
  expect(seen.text).toMatch(/^\{/)
  expect(server.log.filter(({ path }) => /kernels.*\.wasm$/.test(path)).length).toBeGreaterThan(0)
})

test('a page of a bundler that leaves workers out says which address is missing, and takes their folder', async () => {
  const folder = temporaryFolder()
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(repository, join(folder, 'node_modules/moeflux'), 'junction')
  writeFileSync(
    join(folder, 'main.js'),
    `import { openModel } from 'moeflux/browser'
     window.open = async options => {
       const model = await openModel('/model/', { backend: 'wasm', ...options }).catch(error => error)
       return model instanceof Error ? model.message : (await model.generate({ prompt: 'Hi', maxTokens: 5 })).text
     }`,
  )
  const bundle = await rolldown({ input: join(folder, 'main.js'), platform: 'browser' })
  await bundle.write({ dir: join(folder, 'out') })
  await bundle.close()
  writeFileSync(join(folder, 'out/index.html'), '<!doctype html><script type="module" src="./main.js"></script>')
  const mounts = { '/': join(folder, 'out'), '/moeflux/': join(repository, 'dist'), '/model/': demoModel }
  const server = await RangeServer.start({ mounts })
  onTestFinished(() => server.stop())
  const browser = await launchChromium()
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  await page.waitForFunction('window.open.length === 1')
  expect(await page.evaluate('window.open({})')).toBe(
    `backend browser: the engine worker failed: it cannot be loaded from ${server.origin}/engine.worker.js; ` +
      "option 'workers' names its folder",
  )
  expect(await page.evaluate("window.open({ workers: '/moeflux/apps/browser' })")).toMatch(/\w+/)
  expect(await page.evaluate("window.open({ workers: 'http://' })")).toContain(
    "workers: got 'http://', want the address",
  )
})
