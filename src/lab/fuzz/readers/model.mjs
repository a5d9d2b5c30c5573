// Folders of models, raw and packed: every file that makes one, broken in its structure or in its bytes.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openShardedModel } from '#moeflux/files/convert/shardedModel.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { readConfig } from '#moeflux/files/packed/openPacked.js'
import { verifyModel } from '#moeflux/files/verify/verify.js'
import { openModel } from '#moeflux/index.js'
import { filesOf, withCaseFolder } from '../caseFolder.mjs'
import { brokenBytes, joined } from '../mutateBytes.mjs'
import { brokenJson } from '../mutateJson.mjs'
import { demoSource, parsed, tinySource } from './material.mjs'
import { Wrong } from './wrong.mjs'

const INDEX_NAME = 'model.safetensors.index.json'
const PACKED_TEXTS = ['config.json', 'generation_config.json', 'model_weights.json', 'moeflux.json']
/** Two and a half megabytes are quantized and flushed to the disk. */
const CONVERSION_MS = 6000

/** `packed`: the tiny model as it is when nothing is wrong. */
export function modelReaders(packed) {
  const source = filesOf(tinySource)
  const config = parsed(source.get('config.json'))
  const shard = source.get('model.safetensors')
  return {
    safetensors: safetensorsReader(shard),
    index: indexReader(),
    config: configReader(config),
    conversion: conversionReader(config, shard),
    journal: journalReader(packed),
    packed: packedReader(packed),
  }
}

const open = (folder, links) => openNodeFolder(folder, { links })
const openSource = async folder => (await openShardedModel(await open(folder, 'inside'))).close()

function safetensorsReader(shard) {
  const files = bytes => new Map([['model.safetensors', bytes]])
  return {
    valid: files(shard),
    make: random => files(brokenSafetensors(shard, random)),
    read: changed => withCaseFolder(tinySource, changed, openSource),
    names: ['model.safetensors'],
  }
}

function indexReader() {
  const index = parsed(readFileSync(join(demoSource, INDEX_NAME)))
  const files = text => new Map([[INDEX_NAME, text]])
  return {
    valid: files(JSON.stringify(index)),
    make(random) {
      const part = Object.fromEntries(Object.entries(index.weight_map).slice(0, 12))
      const changed = files(brokenJson({ ...index, weight_map: part }, random))
      return random.chance(0.2) ? changed.set('model-00001-of-00002.safetensors', null) : changed
    },
    read: changed => withCaseFolder(demoSource, changed, openSource),
    names: ['safetensors', 'case-'], // a name that leaves the folder is an error of the folder
  }
}

function configReader(tinyConfig) {
  const demoConfig = parsed(readFileSync(join(demoSource, 'config.json')))
  const generation = parsed(readFileSync(join(demoSource, 'generation_config.json')))
  const files = text => new Map([['config.json', text]])
  return {
    valid: files(JSON.stringify(demoConfig)),
    make(random) {
      const changed = files(brokenJson(random.chance(0.5) ? demoConfig : tinyConfig, random))
      return random.chance(0.3) ? changed.set('generation_config.json', brokenJson(generation, random)) : changed
    },
    read: changed => withCaseFolder(tinySource, changed, async folder => readConfig(await open(folder, 'any'))),
    names: ['config.json'],
  }
}

function conversionReader(config, shard) {
  return {
    valid: new Map(),
    make(random) {
      if (random.chance(0.5)) return new Map([['config.json', brokenJson(config, random)]])
      return new Map([['model.safetensors', brokenSafetensors(shard, random)]])
    },
    read: changed =>
      withCaseFolder(tinySource, changed, async folder => {
        await packFolder(folder, `${folder}/packed`)
        await expectSound(`${folder}/packed`)
      }),
    names: ['config.json', 'safetensors', 'case-'], // what is missing is missing in the folder
    limitMs: CONVERSION_MS,
  }
}

/** Some files are there, and what a stopped conversion left beside them says more or less the truth of them. */
function journalReader(packed) {
  const all = filesOf(packed)
  const finished = [...all].slice(0, 4)
  const sums = '0123456789abcdef'
  const entries = finished.map(([name, bytes]) => [name, { size: bytes.length, sha256: '0'.repeat(64), sums }])
  const missing = [...all.keys()].filter(name => !finished.some(([known]) => known === name))
  const files = journal => new Map([...missing.map(name => [name, null]), ['converting.json', journal]])
  const journal = { key: 'x', files: Object.fromEntries(entries) }
  return {
    valid: files(JSON.stringify(journal)),
    make: random => files(brokenJson(journal, random)),
    read: changed =>
      withCaseFolder(packed, changed, async folder => {
        await packFolder(tinySource, folder)
        await expectSound(folder)
      }),
    names: ['case-'],
    limitMs: CONVERSION_MS,
  }
}

/** A folder that a conversion says is done must open and verify. */
async function expectSound(folder) {
  const { problems } = await verifyModel(await open(folder, 'any'))
  if (problems.length > 0) throw new Wrong(`the packed folder is not sound: ${problems[0].message}`)
}

/** What opens must compute: numbers, and the right ones where the folder's checksums tell that bytes are damaged. */
function packedReader(packed) {
  const all = filesOf(packed)
  const large = [...all.keys()].filter(name => /\.(bin|sums)$/.test(name))
  let right = null
  return {
    valid: new Map([['config.json', all.get('config.json')]]),
    make(random) {
      const name = random.chance(0.65) ? random.pick(PACKED_TEXTS) : random.pick(large)
      if (random.chance(0.04)) return new Map([[name, null]])
      const isText = PACKED_TEXTS.includes(name)
      return new Map([[name, isText ? brokenJson(parsed(all.get(name)), random) : brokenBytes(all.get(name), random)]])
    },
    async read(changed) {
      right ??= await logitsOf(packed)
      await withCaseFolder(packed, changed, async folder => {
        const [[name, content]] = changed
        const isDamaged = large.includes(name) && (content === null || !Buffer.from(content).equals(all.get(name)))
        const { problems } = await verifyModel(await open(folder, 'any'))
        if (isDamaged && problems.length === 0) throw new Wrong('verify finds nothing wrong')
        const logits = await logitsOf(folder)
        if (!logits.every(Number.isFinite)) throw new Wrong('logits that are not finite')
        if (large.includes(name) && !logits.every((value, i) => value === right[i])) {
          throw new Wrong('other logits from damaged weights')
        }
      })
    },
    names: [...PACKED_TEXTS, 'model_weights.bin', 'layer_', '.sums', 'case-', 'not finite'],
  }
}

async function logitsOf(folder) {
  const model = await openModel(folder, { backend: 'reference' })
  try {
    return await model.createContext().evalPrompt([1, 2, 3, 4, 5, 6, 7, 8])
  } finally {
    await model.close()
  }
}

/** Broken in its header's JSON, in its length, or in its bytes. */
function brokenSafetensors(shard, random) {
  if (random.chance(0.3)) return brokenBytes(shard, random, [0, 4, 8])
  const headerEnd = 8 + Number(new DataView(shard.buffer, shard.byteOffset).getBigUint64(0, true))
  const text = new TextEncoder().encode(brokenJson(parsed(shard.subarray(8, headerEnd)), random))
  const edges = [0, 1, text.length - 1, text.length + 1, 2 ** 40, shard.length]
  const length = new Uint8Array(8)
  new DataView(length.buffer).setBigUint64(0, BigInt(random.chance(0.85) ? text.length : random.pick(edges)), true)
  const data = shard.subarray(headerEnd)
  return joined(length, text, random.chance(0.85) ? data : data.subarray(0, random.below(data.length)))
}
