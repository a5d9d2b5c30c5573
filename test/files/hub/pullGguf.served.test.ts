// `pull` of GGUF files from a hub look-alike: the packed model is what packing the same file from the disk gives.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { pullModel } from '#moeflux/files/hub/pullModel.js'
import { listModels } from '#moeflux/files/models/modelStore.js'
import { moeflux } from '../../apps/cli/moeflux.js'
import { tinyGguf } from '../../support/models/ggufModel.js'
import { text } from '../../support/models/ggufWriter.js'
import { hashFolder, repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { type HubServer, startHub } from './hubServer.js'

const ID = 'people/model-GGUF'
const file = join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')
const download = { rangeBytes: 256 * 1024, parallel: 2, retryMs: 5 }
let hub: HubServer
afterEach(() => hub?.close())

const weights = (folder: string) => [...hashFolder(folder)].filter(([name]) => name !== 'moeflux.json')

test('the file that is named, packed, and found again', async () => {
  const other = tinyGguf()
  hub = await startHub(
    ID,
    new Map([
      ['m-Q4_K_M.gguf', new Uint8Array(readFileSync(file))],
      ['m-BF16.gguf', other],
    ]),
  )
  const root = temporaryFolder()
  const options = { root, endpoint: hub.url, download }
  const { folder, metadata } = await pullModel(`${ID}:Q4_K_M`, options)
  expect(metadata.model).toBe(`${ID}:Q4_K_M`)
  const want = join(temporaryFolder(), 'packed')
  await packFolder(file, want, { name: metadata.model })
  expect(weights(folder)).toEqual(weights(want))
  expect(readdirSync(join(root, 'downloads'))).toEqual([]) // the source is gone again
  const sent = hub.sent()
  const again = await pullModel(`${ID}:Q4_K_M`, options)
  expect(again.bytesReused).toBe(again.bytes)
  expect(hub.sent() - sent).toBeLessThanOrEqual(2 ** 20) // its start, to see what it is
  await expect(pullModel(ID, options)).rejects.toThrow(`${ID}:Q4_K_M, ${ID}:BF16`)
})

test('what will not run is not downloaded', async () => {
  const llama = tinyGguf({ metadata: [['general.architecture', text('llama')]] })
  hub = await startHub(
    ID,
    new Map([
      ['m-Q8_0.gguf', llama],
      ['README.md', new Uint8Array(1)],
    ]),
  )
  const root = temporaryFolder()
  await expect(pullModel(`${ID}:Q8_0`, { root, endpoint: hub.url, download })).rejects.toThrow('run: qwen35moe')
  expect(hub.requests.filter(({ path, range }) => path.endsWith('.gguf') && range === null)).toEqual([])
  expect(readdirSync(root)).toEqual([])
})

test('a download that breaks off is taken up again', async () => {
  hub = await startHub(ID, new Map([['m-Q4_K_M.gguf', new Uint8Array(readFileSync(file))]]))
  const root = temporaryFolder()
  hub.behaviour.failWith = (path, request) => (path.endsWith('.gguf') && request > 6 ? 403 : null)
  const options = { root, endpoint: hub.url, download }
  await expect(pullModel(`${ID}:Q4_K_M`, options)).rejects.toThrow()
  const before = hub.sent()
  hub.behaviour.failWith = () => null
  const { folder } = await pullModel(`${ID}:Q4_K_M`, options)
  expect(hub.sent() - before).toBeLessThan(readFileSync(file).length + 2 ** 20) // less than all of it, and its start
  const want = join(temporaryFolder(), 'packed')
  await packFolder(file, want, { name: `${ID}:Q4_K_M` })
  expect(weights(folder)).toEqual(weights(want))
})

test('a pull that was stopped is listed by its name: the command that the list prints resumes it, and rm takes the name', async () => {
  hub = await startHub(ID, new Map([['m-Q4_K_M.gguf', new Uint8Array(readFileSync(file))]]))
  const home = temporaryFolder()
  const env = { MOEFLUX_HOME: home, HF_ENDPOINT: hub.url, HF_TOKEN: '' }
  const name = `${ID}:Q4_K_M`
  const stop = async () => {
    let asked = 0
    hub.behaviour.failWith = path => (path.endsWith('.gguf') && ++asked > 3 ? 403 : null)
    await expect(pullModel(name, { root: home, endpoint: hub.url, download })).rejects.toThrow('403')
    hub.behaviour.failWith = () => null
  }
  await stop()
  const listed = await moeflux(['list'], { env })
  expect(listed.stdout).toMatch(/^people\/model-GGUF:Q4_K_M +- +[\d.]+ [kM]B +unfinished$/m)
  const command = /'moeflux (pull [^']+)' resumes an unfinished download/.exec(listed.stderr)?.[1] ?? ''
  expect(command).toBe(`pull ${name}`)
  expect((await moeflux(['rm', name], { env })).stderr).toMatch(/^removed people--model-GGUF_Q4_K_M/)
  expect(await listModels(home)).toEqual([])
  await stop()
  // As it was listed before, too.
  expect((await moeflux(['inspect', 'people/model-GGUF_Q4_K_M'], { env })).stdout).toContain(name)
  const resumed = await moeflux(command.split(' '), { env })
  expect(resumed.code, resumed.stderr).toBe(0)
  const [model, ...others] = await listModels(home)
  expect([model.name, model.state, others]).toEqual([name, 'ready', []])
})

test('what a hub sends names no download', async () => {
  const home = temporaryFolder()
  const folder = join(home, 'downloads/people--model@c0ffee')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'model.safetensors'), Buffer.alloc(5000, 1))
  for (const text of [
    '{"model":"other/model"}',
    '{"model":"people\\u001b/model"}',
    '7',
    '{',
    `"${'x'.repeat(9000)}"`,
  ]) {
    writeFileSync(join(folder, 'moeflux-pull.json'), text)
    expect((await listModels(home)).map(({ name }) => name)).toEqual(['people/model'])
  }
})
