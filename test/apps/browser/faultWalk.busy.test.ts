// Backends in a tab, on sources that fail, hang and come up short: the walk of test/backends/faultWalk.gpu.test.ts in a real
// browser, whose mapped buffers, workers and promises are not those of Node.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rolldown } from 'rolldown'
import { expect, onTestFinished, test } from 'vitest'
import type {} from '../../support/faults/faultPage.js'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { KERNEL } from '../../support/ops/bands.js'
import { launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'

const { MOEFLUX_FAULT_WALK, MOEFLUX_FAULT_SEED = '1' } = process.env
const timeout = 120_000 + 2000 * Number(MOEFLUX_FAULT_WALK ?? 0)

test('calls on a bad disk fail as they should, and all others are right', { timeout }, async () => {
  const folder = temporaryFolder()
  const bundle = await rolldown({
    input: join(repository, 'test/support/faults/faultPage.ts'),
    platform: 'browser',
    // The package as it was built, module by module.
    plugins: [
      {
        name: 'package',
        resolveId: source =>
          source.startsWith('#moeflux/') ? { id: source.replace('#moeflux/', '/dist/'), external: 'absolute' } : null,
      },
    ],
  })
  const { output } = await bundle.generate({ format: 'es', codeSplitting: false })
  await bundle.close()
  writeFileSync(join(folder, 'page.js'), output[0].code)
  writeFileSync(join(folder, 'index.html'), '<!doctype html><script type="module" src="/page.js"></script>')
  const server = await RangeServer.start({ mounts: { '/': folder, '/dist/': join(repository, 'dist') } })
  onTestFinished(() => server.stop())
  const browser = await launchChromium({ gpu: true })
  onTestFinished(() => browser.close())
  const page = await browser.open(server.origin)
  await page.waitForFunction(() => window.walkFaults !== undefined)
  for (const kind of ['webgpu', 'tiers', 1, 2, 3] as const) {
    const steps = Number(MOEFLUX_FAULT_WALK ?? 20)
    // Where an expert of several tiers is computed depends on what was before, and so do the last bits.
    const tolerance = kind === 'tiers' ? KERNEL.maxDifference : 0
    const walk = { kind, seed: Number(MOEFLUX_FAULT_SEED), steps, tolerance }
    const report = await page.evaluate(
      ({ kind, seed, steps, tolerance }) => window.walkFaults(kind, seed, steps, tolerance),
      walk,
    )
    if (MOEFLUX_FAULT_WALK !== undefined) console.log(kind, report)
    expect(report.problem, String(kind)).toBeNull()
    expect(report.failures, String(kind)).toBeGreaterThan(0)
  }
  expect(browser.problems).toEqual([])
})
