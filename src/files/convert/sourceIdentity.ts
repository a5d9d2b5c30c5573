// A hash that tells the weights of one source model from another's without reading all of them: its config, and for each
// shard the name, the size, and samples spread over it, among them the start with the header. The same on every machine.
// Leaves out the small files that are copied as they are (see copiedTexts.ts): a change of those packs no weights anew.
import { createHash } from 'node:crypto'
import { sampleHash } from '../packed/fingerprint.js'
import { CONFIG_NAME } from '../packed/packedNames.js'
import type { ShardedModel } from './shardedModel.js'

const SAMPLES = 64

export async function sourceIdentity(sharded: ShardedModel): Promise<string> {
  const hash = createHash('sha256')
  hash.update((await sharded.folder.readText(CONFIG_NAME)) ?? '')
  for (const [name, shard] of sharded.shards) {
    hash.update(`\n${name} ${shard.size} ${await sampleHash(shard, SAMPLES)}`)
  }
  for (const { name, dtype, shape, offset } of sharded.tensors.values())
    hash.update(`\n${name} ${dtype} ${shape} ${offset}`)
  return hash.digest('hex')
}
