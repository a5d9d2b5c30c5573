// Which models a server offers that is given none by name.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { wantedModels } from '#moeflux/apps/cli/serveOffers.js'
import { preparePacked } from '#moeflux/files/convert/nodePreparePacked.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { repository, temporaryFolder, tinySource } from '../../support/models/packedFiles.js'

const gguf = join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')

test('offers pulled models, and files and folders that were packed when they were opened', async () => {
  const root = temporaryFolder()
  const pulled = join(root, 'models/org--little')
  await packFolder(tinySource, pulled, { name: 'org/little' })
  const file = await preparePacked(gguf, { root })
  const folder = await preparePacked(tinySource, { root })
  expect(await wantedModels(undefined, root)).toEqual([
    { name: 'org/little', place: pulled },
    { name: 'tiny-bf16', place: folder },
    { name: 'tiny-moe-Q4_K_M', place: file },
    { name: 'demo', place: 'demo' },
  ])
})

test('offers two models of one name by their ids', async () => {
  const root = temporaryFolder()
  const pulled = join(root, 'models/other')
  await packFolder(tinySource, pulled, { name: 'tiny-moe-Q4_K_M' })
  const file = await preparePacked(gguf, { root })
  const offered = await wantedModels(undefined, root)
  expect(offered.map(({ place }) => place)).toEqual([pulled, file, 'demo'])
  expect(offered.map(({ name }) => name)).toEqual([
    'other',
    expect.stringMatching(/^tiny-moe-Q4_K_M-[0-9a-f]+$/),
    'demo',
  ])
})

test('does not offer random models, downloads, and folders of other programs', async () => {
  const root = temporaryFolder()
  await packFolder(tinySource, join(root, 'synthetic/a3b-8'), { name: 'a3b:8' })
  mkdirSync(join(root, 'downloads/org--half@0a1b'), { recursive: true })
  writeFileSync(join(root, 'downloads/org--half@0a1b/part'), 'half of a model')
  mkdirSync(join(root, 'models/foreign'), { recursive: true })
  writeFileSync(join(root, 'models/foreign/config.json'), '{}')
  expect(await wantedModels(undefined, root)).toEqual([{ name: 'demo', place: 'demo' }])
})

test('offers the models that are named, and no others', async () => {
  const root = temporaryFolder()
  await packFolder(tinySource, join(root, 'models/org--little'), { name: 'org/little' })
  const named = [gguf, 'demo']
  expect(await wantedModels(named, root)).toEqual([
    { name: 'tiny-moe-Q4_K_M', place: gguf },
    { name: 'demo', place: 'demo' },
  ])
})
