// A model without experts in a real browser: a GGUF file, packed, gives in a tab the text that it gives in Node, on the GPU
// and on the processor; there are no expert files to ask for.
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openModel } from '#moeflux/index.js'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { modelFiles, openEnginePage } from '../../support/servers/enginePage.js'

const request = { prompt: 'The cat and the dog', temperature: 0, maxTokens: 8 }

test('a dense model from a GGUF file answers as in Node, on wasm and on webgpu', { timeout: 240_000 }, async () => {
  const packed = temporaryFolder()
  await packFolder(join(repository, 'test/data/gguf/tiny-dense-IQ4_XS.gguf'), packed)
  const model = await openModel(packed, { backend: 'reference' })
  const { text: expected } = await model.generate(request)
  await model.close()
  expect(expected).not.toBe('')
  const { server, browser, page } = await openEnginePage({ isolated: true, gpu: true, mounts: { '/model/': packed } })
  for (const backend of ['wasm', 'webgpu'] as const) {
    const got = await page.evaluate(
      async ({ backend, request }) => {
        const options = { backend, precision: 'exact', cache: 'memory' } as const
        const model = await window.moeflux.openModel('/model/', options)
        const { text } = await model.generate(request)
        const { expertSlots, networkReads } = await model.stats()
        const { backendDescription } = model.info
        await model.close()
        return { text, backendDescription, expertSlots, networkReads }
      },
      { backend, request },
    )
    expect(got).toMatchObject({ text: expected, expertSlots: 0, networkReads: 0 })
    expect(got.backendDescription).toMatch(backend)
  }
  const asked = server.log.map(({ path }) => path).filter(path => modelFiles.test(path))
  expect(asked.filter(path => path.includes('experts'))).toEqual([])
  expect(browser.problems.filter(line => !/404/.test(line))).toEqual([])
})
