// A prefix store in Redis or Valkey: one server, a cluster, or a master that sentinels know. Objects have a time to live that
// use extends; what goes first when memory is short is the server's own rule (maxmemory-policy).
import type { Cluster, Redis, RedisOptions } from 'ioredis'
import { OptionError } from '../base/errors.js'
import { loadClient } from '../files/remote/loadClient.js'
import type { PrefixStore } from './prefixStore.js'

const DEFAULT_PORT = 6379
const SENTINEL_PORT = 26_379
const DAY_SECONDS = 86_400
const LONGEST_PAUSE_MS = 5_000
const CONNECT_MS = 5_000

/** `redis://[user:password@]host[:port][,host[:port]…][/database][?cluster=true | ?sentinel=master][&ttl=seconds]` */
export async function openRedisStore(url: string): Promise<PrefixStore> {
  const target = parseRedisUrl(url)
  const { Redis, Cluster } = await loadClient('ioredis', () => import('ioredis'))
  const { hosts, sentinel, cluster, options, location, ttl } = target
  const { username, password, tls, connectTimeout } = options
  const inCluster = {
    redisOptions: { username, password, tls, connectTimeout },
    enableOfflineQueue: false,
    lazyConnect: true,
  }
  const client = cluster
    ? new Cluster(hosts, inCluster)
    : sentinel !== null
      ? new Redis({ ...options, sentinels: hosts, name: sentinel, sentinelTLS: options.tls })
      : new Redis({ ...options, ...hosts[0] })
  client.on('error', () => {}) // what a call runs into is thrown there; between calls nobody needs to know
  client.connect().catch(() => {}) // now, while nobody waits for it
  return new RedisStore(client, location, ttl)
}

interface RedisTarget {
  readonly hosts: { host: string; port: number }[]
  readonly cluster: boolean
  readonly sentinel: string | null
  readonly ttl: number // seconds
  readonly location: string
  readonly options: RedisOptions
}

/** Several hosts with ports are no URL that `URL` knows. */
export function parseRedisUrl(url: string): RedisTarget {
  const match = /^(rediss?):\/\/(?:([^@/]*)@)?([^/?]+)(?:\/(\d*))?(?:\?(.*))?$/.exec(url)
  if (match === null) throw new OptionError('store', hidePassword(url), 'redis://host:port, or several hosts')
  const [, scheme, user = '', hostList, database = '', query = ''] = match
  const parameters = new URLSearchParams(query)
  const sentinel = parameters.get('sentinel')
  const cluster = parameters.get('cluster') === 'true' || parameters.get('cluster') === '1'
  const port = sentinel === null ? DEFAULT_PORT : SENTINEL_PORT
  const hosts = hostList.split(',').map(text => {
    const found = /^(\[[0-9a-fA-F:]+\]|[^:]+)(?::(\d+))?$/.exec(text)
    if (found === null) throw new OptionError('store', text, 'host or host:port')
    return { host: found[1].replace(/^\[|\]$/g, ''), port: found[2] === undefined ? port : Number(found[2]) }
  })
  if (hosts.length > 1 && sentinel === null && !cluster) {
    throw new OptionError('store', hostList, 'one host, or ?cluster=true or ?sentinel=name behind several')
  }
  const ttl = Number(parameters.get('ttl') ?? DAY_SECONDS)
  if (!Number.isInteger(ttl) || ttl < 1) throw new OptionError('store', `ttl=${parameters.get('ttl')}`, 'seconds')
  const [username = '', ...password] = user.split(':').map(decodeURIComponent)
  return {
    hosts,
    cluster,
    sentinel,
    ttl,
    location: hidePassword(url),
    options: {
      username: username || undefined,
      password: password.join(':') || undefined,
      db: database === '' ? 0 : Number(database),
      tls: scheme === 'rediss' ? {} : undefined,
      connectTimeout: CONNECT_MS,
      enableOfflineQueue: false, // a server that is away is an error at once, not a queue
      maxRetriesPerRequest: 0,
      lazyConnect: true,
      retryStrategy: attempt => Math.min(attempt * 200, LONGEST_PAUSE_MS),
    },
  }
}

export function hidePassword(url: string): string {
  return url.replace(/\/\/[^@/]*@/, '//')
}

class RedisStore implements PrefixStore {
  private connecting: Promise<void> | null = null

  constructor(
    private readonly client: Redis | Cluster,
    readonly location: string,
    private readonly ttl: number,
  ) {}

  async has(names: readonly string[]): Promise<boolean[]> {
    await this.connected()
    return await Promise.all(names.map(async name => (await this.client.exists(key(name))) === 1))
  }

  async get(names: readonly string[]): Promise<(Uint8Array | null)[]> {
    await this.connected()
    // One by one, sent together: the keys may be in different parts of a cluster.
    return await Promise.all(names.map(name => this.client.getexBuffer(key(name), 'EX', this.ttl)))
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    await this.connected()
    const { buffer, byteOffset, byteLength } = bytes
    await this.client.set(key(name), Buffer.from(buffer, byteOffset, byteLength), 'EX', this.ttl)
  }

  async remove(name: string): Promise<void> {
    await this.client.del(key(name))
  }

  async close(): Promise<void> {
    this.client.disconnect()
  }

  /** The first call connects, and so does one after the connection was given up. */
  private async connected(): Promise<void> {
    const { status } = this.client
    if (status === 'wait' || status === 'end') await this.client.connect()
    else if (status === 'connecting' || status === 'connect') {
      this.connecting ??= this.untilReady()
      await this.connecting
    }
  }

  private async untilReady(): Promise<void> {
    const { client } = this
    let refused = () => {}
    try {
      await new Promise<void>((resolve, reject) => {
        refused = () => reject(new Error('the connection was refused'))
        client.once('ready', resolve).once('close', refused)
      })
    } finally {
      this.connecting = null
      client.removeListener('close', refused)
    }
  }
}

function key(name: string): string {
  return `moeflux:${name}`
}
