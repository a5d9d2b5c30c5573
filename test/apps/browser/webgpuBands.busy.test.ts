// The webgpu backend in a real browser, on SwiftShader: the built modules as they are, without a bundler, both models, one
// without experts and one with biases and sinks against the goldens.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { FamilyGoldens, keptWeights, writeFamily } from '../../support/models/families.js'
import { Goldens } from '../../support/models/goldens.js'
import { demoModel, packTiny } from '../../support/models/models.js'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { EXACT_LOGITS, expectClose, FAST_LOGITS } from '../../support/ops/bands.js'
import { launchChromium } from '../../support/servers/chromium.js'
import { RangeServer } from '../../support/servers/rangeServer.js'

interface Evaluated {
  readonly description: string
  readonly logits: number[] // of the prompt's last token
  readonly greedy: number[]
}

declare global {
  interface Window {
    evaluate(folder: string, precision: string, gpu: object, tokens: number[], more: number): Promise<Evaluated>
  }
}

const html = `<!doctype html><meta charset="utf-8"><title>bands</title><script type="module">
  import { openPacked } from '/dist/files/packed/openPacked.js'
  import { openWebgpuBackend } from '/dist/backends/webgpu/open/openWebgpuBackend.js'
  const folderAt = location => ({
    location,
    async readText(name) {
      const answer = await fetch(location + name)
      return answer.ok ? answer.text() : null
    },
    async open(name) {
      const bytes = new Uint8Array(await (await fetch(location + name)).arrayBuffer())
      return {
        name: location + name,
        size: bytes.length,
        async read(offset, target) {
          target.set(bytes.subarray(offset, offset + target.length))
        },
        async close() {},
      }
    },
  })
  window.evaluate = async (folder, precision, gpu, tokens, more) => {
    const packed = await openPacked(folderAt(folder))
    const { expertsPerToken } = packed.config
    const backend = await openWebgpuBackend(packed, { precision, expertsPerToken }, gpu)
    const sequence = backend.createSequence()
    let [output] = await backend.step([{ sequence, tokens, phase: 'prompt', output: 'last' }])
    const logits = [...output.logits]
    const greedy = [output.argmax]
    while (greedy.length < more) {
      ;[output] = await backend.step([{ sequence, tokens: [output.argmax], phase: 'decode', output: 'argmax' }])
      greedy.push(output.argmax)
    }
    const { description } = backend
    await backend.close()
    return { description, logits, greedy }
  }
</script>`

const portable = { subgroups: false, packedDot: false, defaultLimits: true }
const cases = (['demo', 'tiny'] as const).flatMap(model => [
  { model, precision: 'exact', gpu: {}, kernels: /packed dot, checked, exact$/ },
  { model, precision: 'fast', gpu: portable, kernels: /portable, unpacked, checked, fast$/ },
])
const families = ['qwen3_5', 'gpt_oss'] as const

describe('webgpu in Chromium', () => {
  let tiny: string
  beforeAll(async () => {
    tiny = await packTiny('separate')
  })

  test('models within their bands, with the best kernels and the portable ones', {
    timeout: 240_000,
  }, async () => {
    const page = temporaryFolder()
    writeFileSync(join(page, 'index.html'), html)
    const others = temporaryFolder()
    for (const name of families) {
      await packFolder(writeFamily(name, join(others, name, 'source')), join(others, name, 'packed'), keptWeights(name))
    }
    const dist = join(repository, 'dist')
    const mounts = { '/': page, '/dist/': dist, '/demo/': demoModel, '/tiny/': tiny, '/others/': others }
    const server = await RangeServer.start({ mounts })
    const browser = await launchChromium({ gpu: true })
    try {
      const tab = await browser.open(server.origin)
      await tab.waitForFunction(() => window.evaluate !== undefined)
      for (const { model, precision, gpu, kernels } of cases) {
        const golden = new Goldens(model).prompt(0)
        const request = { folder: `/${model}/`, precision, gpu, tokens: [...golden.ids] }
        const got = await tab.evaluate(r => window.evaluate(r.folder, r.precision, r.gpu, r.tokens, 4), request)
        const what = `${model}, ${precision}`
        expect(got.description, what).toMatch(kernels)
        const isExact = precision === 'exact'
        expectClose(got.logits, golden.lastLogits, isExact ? EXACT_LOGITS : FAST_LOGITS, what)
        if (isExact) expect(got.greedy, what).toEqual([...golden.greedy.subarray(0, 4)])
      }
      for (const name of families) {
        const golden = new FamilyGoldens(name)
        const request = { folder: `/others/${name}/packed/`, tokens: golden.ints('ids') }
        const got = await tab.evaluate(
          r => window.evaluate(r.folder, 'exact', { chunkTokens: 128 }, r.tokens, 4),
          request,
        )
        expect(got.greedy, name).toEqual(golden.ints('greedy').slice(0, 4))
      }
      // Files that a packed folder may lack are asked for, and the browser says so.
      expect(browser.problems.filter(line => !/404/.test(line))).toEqual([])
    } finally {
      await browser.close()
      await server.stop()
    }
  })
})
