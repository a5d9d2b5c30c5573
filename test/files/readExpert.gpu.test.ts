// What `readExpert` gives, byte by byte against the files: every layer and expert of packed folders of each kind, on a disk and on a
// server that sends ranges.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { demoModelPath, openModel } from '#moeflux/index.js'
import { writeFamily } from '../support/models/families.js'
import { repository, tinySource } from '../support/models/packedFiles.js'
import { RangeServer } from '../support/servers/rangeServer.js'
import { folderOfThisFile, removeFolders } from '../support/temporaryFolders.js'

const before = process.env.MOEFLUX_HOME
const home = folderOfThisFile('read-expert')
let server: RangeServer

const kinds = [
  { name: 'records', pack: async () => demoModelPath() },
  { name: 'records of 2 bits', expertBits: 2 as const, pack: packed(tinySource, { experts2bit: true }) },
  // Its first layer has no experts: files are counted by layers all the same.
  { name: 'a dense layer first', pack: packed(writeFamily('glm4_moe', join(home, 'glm4_moe'))) },
  // Records of some layers are shorter than those of others.
  { name: 'GGUF of mixed types', pack: packed(join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')) },
]

function packed(source: string, options: { experts2bit?: boolean } = {}) {
  return async () => {
    const folder = folderOfThisFile('read-expert')
    await packFolder(source, folder, options)
    return folder
  }
}

const folders = new Map<string, string>()

beforeAll(async () => {
  process.env.MOEFLUX_HOME = home
  for (const { name, pack } of kinds) folders.set(name, await pack())
  const mounts = Object.fromEntries(kinds.map(({ name }, i) => [`/${i}/`, folders.get(name)!]))
  server = await RangeServer.start({ mounts, isolated: false })
})

afterAll(async () => {
  await server.stop()
  if (before === undefined) delete process.env.MOEFLUX_HOME
  else process.env.MOEFLUX_HOME = before
  removeFolders()
})

test.each(kinds)('the bytes of the file: $name', async ({ name, expertBits }) => {
  const folder = folders.get(name)!
  const set = expertBits === 2 ? 'packed_experts_2bit' : 'packed_experts'
  const place = kinds.findIndex(kind => kind.name === name)
  for (const from of [folder, `${server.origin}/${place}`]) {
    const model = await openModel(from, { backend: 'reference', expertBits })
    try {
      const { moeLayers, numExperts } = model.config
      expect(moeLayers.length).toBeGreaterThan(0)
      for (const layer of moeLayers) {
        const file = readFileSync(join(folder, set, `layer_${String(layer).padStart(2, '0')}.bin`))
        const size = file.length / numExperts
        for (let expert = 0; expert < numExperts; expert++) {
          const record = await model.readExpert(layer, expert)
          const want = file.subarray(expert * size, (expert + 1) * size)
          expect(Buffer.compare(record, want), `layer ${layer}, expert ${expert} of ${from}`).toBe(0)
        }
      }
    } finally {
      await model.close()
    }
  }
})
