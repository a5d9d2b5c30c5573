// docs/browser.md lists the files that a page has to serve: a page that has these alone loads a model, answers, and holds an
// answer to a schema.
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { openEnginePage } from '../../support/servers/enginePage.js'

/** In the first column of the table, below `dist/`. */
function namedFiles(): string[] {
  const page = readFileSync(join(repository, 'docs/browser.md'), 'utf8')
  const table = /^\| file below `dist\/` .*\n\| --- .*\n((?:\|.*\n)*)/m.exec(page)?.[1] ?? ''
  return table
    .split('\n')
    .flatMap(line => [...(line.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, name]) => name))
}

test('a page with the files that the documents name, and no others, runs a model', { timeout: 120_000 }, async () => {
  const names = namedFiles()
  expect(names).toContain('browser.js')
  expect(names).toContain('apps/browser/engine.worker.js')
  const folder = temporaryFolder()
  for (const name of names) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    copyFileSync(join(repository, 'dist', name), join(folder, name))
  }
  const { page, server, browser } = await openEnginePage({ mounts: { '/dist/': folder } })
  const answer = await page.evaluate(async () => {
    const model = await window.moeflux.openModel('/model/', { backend: 'wasm' })
    const schema = { type: 'object', properties: { girl: { enum: ['Mia'] } }, required: ['girl'] }
    const { text } = await model.generate({
      prompt: 'Tell me a story about a girl named Mia',
      responseFormat: { type: 'json_schema', schema: { ...schema, additionalProperties: false } },
      maxTokens: 40,
    })
    await model.close()
    return text
  })
  expect(JSON.parse(answer)).toEqual({ girl: 'Mia' })
  const missing = server.log.filter(({ status }) => status === 404).map(({ path }) => path)
  const ofTheEngine = missing.filter(path => path.startsWith('/dist/') && !path.endsWith('.map'))
  expect([ofTheEngine, browser.problems.filter(line => !/404/.test(line))]).toEqual([[], []])
  const used = new Set(server.log.map(({ path }) => path.replace(/^\/dist\//, '')))
  const kernels = /^backends\/wasm\/kernels\./ // one of three
  expect(names.filter(name => !kernels.test(name) && !used.has(name))).toEqual([])
  expect(names.filter(name => kernels.test(name) && used.has(name)).length).toBe(1)
})
