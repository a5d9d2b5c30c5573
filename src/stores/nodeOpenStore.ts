// From a URL or path to a prefix store.
import { OptionError } from '../base/errors.js'
import { FolderStore } from './folderStore.js'
import type { PrefixStore } from './prefixStore.js'

/** A folder, `redis://`, `rediss://` or `s3://`. Connects when it is first used. */
export async function openStore(url: string): Promise<PrefixStore> {
  const scheme = /^([a-z][a-z0-9+.-]+):\/\//i.exec(url)?.[1].toLowerCase()
  if (scheme === 'redis' || scheme === 'rediss') return (await import('./redisStore.js')).openRedisStore(url)
  if (scheme === 's3') return (await import('./s3Store.js')).openS3Store(url)
  if (scheme === 'file') return new FolderStore((await import('node:url')).fileURLToPath(url))
  if (scheme === undefined && url !== '') return new FolderStore(url)
  throw new OptionError('store', url.replace(/\/\/[^@/]*@/, '//'), 'a folder, redis://, rediss:// or s3://')
}
