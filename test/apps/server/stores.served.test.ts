// The stores, on real servers: the same calls on a folder, Redis, a cluster, a master behind sentinels, and S3.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, describe, expect, test } from 'vitest'
import { parseS3Url } from '#moeflux/files/remote/s3Client.js'
import { openStore } from '#moeflux/stores/nodeOpenStore.js'
import type { PrefixStore } from '#moeflux/stores/prefixStore.js'
import { hidePassword, parseRedisUrl } from '#moeflux/stores/redisStore.js'
import { freePort, startRedis, startS3 } from '../../../src/lab/scaleOut/servers.mjs'
import { withServers } from '../../support/servers/realServers.js'

const stops: (() => unknown)[] = []
afterAll(async () => {
  for (const stop of stops.reverse()) await stop()
})
const name = (number: number, kind = 'kv') => `test/${kind}-${String(number).padStart(64, '0')}`
const bytes = (size: number, seed: number) => Uint8Array.from({ length: size }, (_, i) => (i * 31 + seed) & 255)

async function behaves(store: PrefixStore): Promise<void> {
  expect(await store.has([name(1), name(2)])).toEqual([false, false])
  expect(await store.get([name(1)])).toEqual([null])
  await Promise.all([store.put(name(1), bytes(70_000, 1)), store.put(name(2, 'state'), bytes(3, 2))])
  await store.put(name(1), bytes(70_000, 1))
  expect(await store.has([name(3), name(1), name(2, 'state')])).toEqual([false, true, true])
  const [large, none, small] = await store.get([name(1), name(3), name(2, 'state')])
  expect(none).toBeNull()
  expect(Buffer.compare(large as Uint8Array, bytes(70_000, 1))).toBe(0)
  expect([...(small as Uint8Array)]).toEqual([...bytes(3, 2)])
  await store.remove(name(1))
  await store.remove(name(1))
  expect(await store.has([name(1)])).toEqual([false])
}

describe('a store', () => {
  test('in a folder', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'moeflux-store-'))
    stops.push(() => rmSync(folder, { recursive: true, force: true }))
    await behaves(await openStore(folder))
  })

  const redis = withServers(['redis'])
  redis('in Redis, whose objects live as long as they are used', async () => {
    const server = await startRedis({ args: ['--requirepass', 'p w'] })
    stops.push(server.stop)
    const store = await openStore(`redis://:p%20w@127.0.0.1:${server.port}/1?ttl=1000`)
    stops.push(() => store.close())
    expect(store.location).not.toContain('p%20w')
    await behaves(store)
    await store.put(name(7), bytes(10, 7))
    const client = new Redis({ port: server.port, password: 'p w', db: 1 })
    stops.push(() => client.disconnect())
    await client.expire(`moeflux:${name(7)}`, 5)
    await store.get([name(7)])
    expect(await client.ttl(`moeflux:${name(7)}`)).toBeGreaterThan(900)
  })

  redis('in a Redis that is full, says so, and goes on giving what it has', async () => {
    const server = await startRedis({ args: ['--maxmemory', '4mb', '--maxmemory-policy', 'noeviction'] })
    stops.push(server.stop)
    const store = await openStore(server.url)
    stops.push(() => store.close())
    await store.put(name(1), bytes(1000, 1))
    await expect(store.put(name(2), bytes(8_000_000, 2)).then(() => store.put(name(3), bytes(10, 3)))).rejects.toThrow(
      /OOM|maxmemory/,
    )
    expect(await store.has([name(1)])).toEqual([true])
  })

  redis('in a Redis that goes and comes back', async () => {
    const server = await startRedis()
    const store = await openStore(server.url)
    stops.push(() => store.close())
    await store.put(name(1), bytes(10, 1))
    await server.stop()
    await expect(store.has([name(1)])).rejects.toThrow()
    const again = await startRedis({ port: server.port })
    stops.push(again.stop)
    await expect.poll(() => store.has([name(1)]).catch(() => 'away')).toEqual([false])
    await behaves(store)
  })

  redis('in a cluster', async () => {
    const server = await startRedis({ args: ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1'] })
    stops.push(server.stop)
    const admin = new Redis({ port: server.port })
    stops.push(() => admin.disconnect())
    await admin.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
    await expect.poll(async () => String(await admin.call('CLUSTER', 'INFO'))).toContain('cluster_state:ok')
    const store = await openStore(`redis://127.0.0.1:${server.port}?cluster=true`)
    stops.push(() => store.close())
    await behaves(store)
  })

  redis('in a master that a sentinel knows', async () => {
    const server = await startRedis()
    stops.push(server.stop)
    const folder = mkdtempSync(join(tmpdir(), 'moeflux-sentinel-'))
    stops.push(() => rmSync(folder, { recursive: true, force: true }))
    const config = join(folder, 'sentinel.conf')
    writeFileSync(config, `sentinel monitor main 127.0.0.1 ${server.port} 1\n`)
    const port = await freePort()
    const { spawn } = await import('node:child_process')
    const options = ['--sentinel', '--port', String(port), '--bind', '127.0.0.1', '--dir', folder]
    const sentinel = spawn('redis-server', [config, ...options], { stdio: 'ignore' })
    stops.push(() => sentinel.kill('SIGKILL'))
    const store = await openStore(`redis://127.0.0.1:${port}?sentinel=main`)
    stops.push(() => store.close())
    await expect.poll(() => store.has([name(1)]).catch(() => 'away')).toEqual([false])
    await behaves(store)
  })

  test('in S3, and says what an S3 refuses', async () => {
    const server = await startS3()
    stops.push(server.stop)
    for (const [key, value] of Object.entries(server.env)) process.env[key] = value
    const store = await openStore(server.url)
    await behaves(store)
    const nowhere = await openStore(server.url.replace('moeflux-test', 'no-such-bucket'))
    await expect(nowhere.put(name(1), bytes(3, 1))).rejects.toMatchObject({ code: 'HTTP_STATUS', status: 404 })
    const aborted = AbortSignal.abort(new Error('nobody waits'))
    await expect(store.get([name(1)], aborted)).rejects.toThrow('nobody waits')
  })
})

describe('URLs of stores', () => {
  test('of Redis: hosts, clusters, sentinels, users', () => {
    expect(parseRedisUrl('redis://h')).toMatchObject({ hosts: [{ host: 'h', port: 6379 }], ttl: 86_400 })
    expect(parseRedisUrl('rediss://u:p%40@[::1]:7/3').options).toMatchObject({
      username: 'u',
      password: 'p@',
      db: 3,
      tls: {},
    })
    expect(parseRedisUrl('redis://a,b:2/?cluster=true')).toMatchObject({ cluster: true, hosts: [{}, { port: 2 }] })
    expect(parseRedisUrl('redis://a,b/?sentinel=m')).toMatchObject({ sentinel: 'm', hosts: [{ port: 26_379 }, {}] })
    expect(hidePassword('redis://u:p@h/1')).toBe('redis://h/1')
    for (const bad of ['redis://', 'redis://a,b', 'redis://h?ttl=x', 'redis://h:x']) {
      expect(() => parseRedisUrl(bad)).toThrow(expect.objectContaining({ code: 'BAD_OPTION' }))
    }
  })

  test('of S3: AWS, or any endpoint', () => {
    expect(parseS3Url('s3://bucket/a/b?region=eu-west-1').base).toBe('https://bucket.s3.eu-west-1.amazonaws.com/a/b/')
    expect(parseS3Url('s3://bucket?endpoint=http://h:9000/').base).toBe('http://h:9000/bucket/')
    expect(() => parseS3Url('s3://')).toThrow(expect.objectContaining({ code: 'BAD_OPTION' }))
  })

  test('of nothing known are refused', async () => {
    await expect(openStore('mongodb://x')).rejects.toMatchObject({ code: 'BAD_OPTION' })
    await expect(openStore('')).rejects.toMatchObject({ code: 'BAD_OPTION' })
  })
})
