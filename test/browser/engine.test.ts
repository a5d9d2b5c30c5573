import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { launchChromium } from '../support/chromium.js'
import { demoModel } from '../support/models.js'
import { repository, temporaryFolder } from '../support/packedFiles.js'
import { RangeServer } from '../support/rangeServer.js'

test('first answer', async () => {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'index.html'), `<!doctype html><script type="module">
    import * as moeflux from '/dist/browser/index.js'
    window.moeflux = moeflux
  </script>`)
  const server = await RangeServer.start({ mounts: { '/': folder, '/dist/': join(repository, 'dist'), '/model/': demoModel } })
  onTestFinished(() => server.stop())
  const browser = await launchChromium()
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  await page.waitForFunction('window.moeflux')
  const result = await page.evaluate(`(async () => {
    const notices = []
    try {
    const model = await moeflux.openModel('/model/', { backend: 'wasm', onNotice: l => notices.push(l) })
    const answer = await model.generate({ prompt: 'Tell me a story', maxTokens: 40, temperature: 0 })
    const r = { info: model.info.backendDescription, answer, notices, stats: await model.stats(), storage: await model.storage() }
    await model.close()
    return r
    } catch (e) { return { error: String(e), stack: e.stack, code: e.code, notices } }
  })()`)
  console.log(JSON.stringify(result, null, 1), browser.console, browser.problems, server.log.length)
  expect(1).toBe(1)
})
