// GGUF files: broken in their header, where each byte means something, or in their data.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ReadError } from '#moeflux/base/errors.js'
import { openShardedModel } from '#moeflux/files/convert/shardedModel.js'
import { readGgufHeader } from '#moeflux/files/gguf/ggufFile.js'
import { openGgufFolder } from '#moeflux/files/gguf/ggufFolder.js'
import { sampleHash } from '#moeflux/files/packed/fingerprint.js'
import { loadTokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { brokenBytes, joined } from '../mutateBytes.mjs'
import { repository } from './material.mjs'

const SAMPLES = 8

export async function ggufReaders() {
  const valid = new Uint8Array(readFileSync(join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')))
  const { tensors } = await readGgufHeader(memorySource(valid))
  const headerEnd = Math.min(...[...tensors.values()].map(({ offset }) => offset))
  const fields = [0, 4, 8, 16]
  return {
    gguf: {
      valid,
      make(random) {
        if (random.chance(0.1)) return brokenBytes(valid, random, fields)
        return joined(brokenBytes(valid.subarray(0, headerEnd), random, fields), valid.subarray(headerEnd))
      },
      async read(bytes) {
        const folder = await openGgufFolder('broken.gguf', async () => memorySource(bytes))
        await loadTokenizer(folder)
        const sharded = await openShardedModel(folder)
        for (const shard of sharded.shards.values()) await sampleHash(shard, SAMPLES)
        await sharded.close()
      },
      names: ['broken.gguf', 'config.json', 'tokenizer.json'],
    },
  }
}

function memorySource(bytes) {
  return {
    name: 'broken.gguf',
    size: bytes.length,
    async read(offset, target) {
      if (offset + target.length > bytes.length)
        throw new ReadError('broken.gguf', offset, target.length, 'past the end')
      target.set(bytes.subarray(offset, offset + target.length))
    },
    async close() {},
  }
}
