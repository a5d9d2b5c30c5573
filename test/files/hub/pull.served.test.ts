// `pull` against a hub look-alike that drops connections, is slow, and changes its mind: what ends in the store is what
// packing the same source from the disk gives, and the disk never holds twice the model.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { parseSafetensorsHeader, type SafetensorsTensor } from '#moeflux/files/convert/safetensors.js'
import { type PullOptions, pullModel } from '#moeflux/files/hub/pullModel.js'
import { planPull } from '#moeflux/files/hub/pullPlan.js'
import { missingBytes, sizePull } from '#moeflux/files/hub/pullSize.js'
import { moeflux } from '../../apps/cli/moeflux.js'
import { demoSource, hashFolder, temporaryFolder } from '../../support/models/packedFiles.js'
import { COMMIT, type HubServer, startHub } from './hubServer.js'

const ID = 'people/demo'
const SHARDS = 10
const files = new Map<string, Uint8Array>()
let sourceBytes = 0
let hub: HubServer

beforeAll(() => {
  for (const name of readdirSync(demoSource)) {
    if (!name.includes('safetensors')) files.set(name, readFileSync(join(demoSource, name)))
  }
  for (const [name, bytes] of reshard()) files.set(name, bytes)
  for (const [name, bytes] of files) if (name.endsWith('.safetensors')) sourceBytes += bytes.length
})
afterEach(() => hub?.close())

/** The demo model in many shards, its layers in the order of their names and not of their numbers. */
function reshard(): Map<string, Uint8Array> {
  const tensors: (SafetensorsTensor & { data: Uint8Array })[] = []
  for (const name of readdirSync(demoSource).filter(file => file.endsWith('.safetensors'))) {
    const bytes = new Uint8Array(readFileSync(join(demoSource, name)))
    const end = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true))
    for (const tensor of parseSafetensorsHeader(bytes.subarray(8, end), bytes.length, name).tensors.values()) {
      tensors.push({ ...tensor, data: bytes.subarray(tensor.offset, tensor.offset + tensor.size) })
    }
  }
  tensors.sort((a, b) => (a.name < b.name ? -1 : 1))
  const total = tensors.reduce((sum, { size }) => sum + size, 0)
  const shards = Array.from({ length: SHARDS }, () => [] as typeof tensors)
  let before = 0
  for (const tensor of tensors) {
    shards[Math.min(SHARDS - 1, Math.floor((before * SHARDS) / total))].push(tensor)
    before += tensor.size
  }
  const out = new Map<string, Uint8Array>()
  const weightMap: Record<string, string> = {}
  shards.forEach((own, index) => {
    const name = `model-${String(index + 1).padStart(5, '0')}-of-${SHARDS}.safetensors`
    const header: Record<string, unknown> = { __metadata__: { format: 'mlx' } }
    let at = 0
    for (const { name: tensor, dtype, shape, size } of own) {
      header[tensor] = { dtype, shape, data_offsets: [at, at + size] }
      weightMap[tensor] = name
      at += size
    }
    const text = Buffer.from(JSON.stringify(header))
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(text.length))
    out.set(name, Buffer.concat([length, text, ...own.map(({ data }) => data)]))
  })
  out.set('model.safetensors.index.json', Buffer.from(JSON.stringify({ metadata: {}, weight_map: weightMap })))
  return out
}

const download = { rangeBytes: 256 * 1024, parallel: 3, retryMs: 5 }
const options = (root: string, more: PullOptions = {}): PullOptions => ({ root, endpoint: hub.url, download, ...more })

function folderBytes(folder: string): number {
  if (!existsSync(folder)) return 0
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce((sum, entry) => {
    if (!entry.isFile()) return sum
    // Blocks, not lengths: a file that is being downloaded is as long as it will be.
    const info = statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false })
    return sum + (info?.blocks ?? 0) * 512
  }, 0)
}

/** Everything but moeflux.json, which names the source. */
function packedFiles(folder: string): Map<string, string> {
  const hashes = hashFolder(folder)
  hashes.delete('moeflux.json')
  return hashes
}

async function expectPacked(root: string): Promise<void> {
  const target = temporaryFolder()
  await packFolder(demoSource, join(target, 'packed'), { name: ID })
  expect(packedFiles(join(root, 'models/people--demo'))).toEqual(packedFiles(join(target, 'packed')))
  expect(readdirSync(join(root, 'downloads'))).toEqual([]) // nothing is left of the way
}

describe('pull', () => {
  test('packs shard by shard, within the disk that was told, less than twice the model', async () => {
    hub = await startHub(ID, files)
    hub.behaviour.pauseMs = 1
    const root = temporaryFolder()
    let peak = 0
    const watch = setInterval(() => (peak = Math.max(peak, folderBytes(root))), 10)
    const phases = new Set<string>()
    const needed = missingBytes(await sizePull(await planPull(ID, { endpoint: hub.url })))
    const result = await pullModel(ID, options(root, { onProgress: ({ phase }) => phases.add(phase) }))
    clearInterval(watch)
    expect(result).toMatchObject({ commit: COMMIT, folder: join(root, 'models/people--demo') })
    expect([...phases]).toEqual(['download'])
    await expectPacked(root)
    expect(peak).toBeGreaterThan(sourceBytes / 2)
    expect(peak).toBeLessThan(1.02 * needed) // with small files
    expect(needed).toBeLessThan(1.75 * sourceBytes)
    expect(hub.sent()).toBeLessThan(1.1 * sourceBytes + 2 ** 20) // every shard once
    expect((await pullModel(ID, options(root))).bytesReused).toBe(result.bytes)
  })

  test('ends whole after being killed three times, over connections that break', async () => {
    hub = await startHub(ID, files)
    hub.behaviour.pauseMs = 1
    hub.behaviour.pieceBytes = 32 * 1024
    hub.behaviour.dropAfter = (_, request) => (request % 3 === 0 ? 100_000 : null)
    hub.behaviour.failWith = (path, request) => (path.endsWith('.safetensors') && request % 7 === 0 ? 503 : null)
    const root = temporaryFolder()
    for (const share of [0.2, 0.5, 0.85]) expect(await pullAndDie(root, share)).toBe('SIGKILL')
    const before = hub.sent()
    const told: { loaded: number; total: number; reused: number }[] = []
    await pullModel(ID, options(root, { onProgress: progress => told.push(progress) }))
    await expectPacked(root)
    expect(hub.sent() - before).toBeLessThan(0.6 * sourceBytes) // the last run went on
    const { loaded, total, reused } = told.at(-1) ?? { loaded: 0, total: 0, reused: 0 }
    expect(loaded).toBe(total)
    expect(reused).toBeGreaterThan(0.4 * sourceBytes)
    expect(loaded - reused).toBeLessThanOrEqual(hub.sent() - before)
  })

  test('starts a file anew whose etag changes, and one whose checksum is wrong', async () => {
    hub = await startHub(ID, files)
    const [changed, damaged] = [...files.keys()].filter(name => name.endsWith('.safetensors')).slice(2)
    hub.behaviour.content = (name, bytes, request) => {
      if (name !== damaged || request < 3 || request > 6) return bytes
      const copy = Uint8Array.from(bytes)
      for (let i = 0; i < copy.length; i += 1000) copy[i] ^= 1
      return copy
    }
    // The etag alone must not give the damage away.
    hub.behaviour.etag = (name, _, request) => (name === changed && request > 5 ? '"b"' : '"a"')
    const notices: string[] = []
    const root = temporaryFolder()
    await pullModel(ID, options(root, { onNotice: line => notices.push(line) }))
    await expectPacked(root)
    expect(notices.filter(line => line.includes('changed on the hub'))).toHaveLength(1)
    expect(notices.filter(line => line.includes('checksum'))).toHaveLength(1)
  })

  test('drops a connection that stalls, and gives up where nothing comes', async () => {
    hub = await startHub(ID, files)
    hub.behaviour.dropAfter = (name, request) => (name.endsWith('00003-of-10.safetensors') && request > 2 ? 0 : null)
    const root = temporaryFolder()
    const pull = pullModel(ID, options(root, { download: { ...download, retries: 2 } }))
    await expect(pull).rejects.toThrow(/gave up after 2 retries/)
    hub.behaviour.dropAfter = () => null
    let stalls = 2
    hub.behaviour.content = (_, bytes) => {
      hub.behaviour.pauseMs = stalls-- > 0 ? 400 : 0
      return bytes
    }
    await pullModel(ID, options(root, { limits: { stallMs: 150 } }))
    await expectPacked(root)
  })

  test('sends a token, and says what is wrong with a hub in one line', async () => {
    hub = await startHub(ID, files, 'secret')
    const gone = await startHub(ID, files)
    await gone.close()
    const root = temporaryFolder()
    const pull = (id: string, env: Record<string, string> = {}) =>
      moeflux(['pull', id], { env: { MOEFLUX_HOME: root, HF_ENDPOINT: hub.url, HF_TOKEN: '', ...env } })
    const [noToken, wrong, unreachable, bad] = await Promise.all([
      pull(ID),
      pull('people/nothing', { HF_TOKEN: 'secret' }),
      pull(ID, { HF_ENDPOINT: gone.url }),
      pull('../etc'),
    ])
    expect(noToken).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: people\/demo: .*HF_TOKEN.*\n$/) })
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: .*no such model.*\n$/) })
    expect(unreachable).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: .*ECONNREFUSED.*\n$/) })
    expect(bad).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: .*owner\/name.*\n$/) })
    const pulled = await pull(ID, { HF_TOKEN: 'secret' })
    expect(pulled).toMatchObject({ code: 0, stderr: expect.stringMatching(/pulled people\/demo/) })
    const env = { MOEFLUX_HOME: root }
    const told = await moeflux(['run', '--model', ID, '--max-tokens', '8', 'Hi'], { env })
    expect(told.code).toBe(0)
    expect(told.stdout.length).toBeGreaterThan(5)
  })
})

describe.skipIf(process.platform === 'win32')('a pull that was suspended', () => {
  // Windows has no signals that suspend a process.
  test('gives way to the next one for good, also in what it was downloading', async () => {
    hub = await startHub(ID, files)
    hub.behaviour.pauseMs = 1
    const root = temporaryFolder()
    const program = `
      import { pullModel } from '${new URL('../../../dist/files/hub/pullModel.js', import.meta.url).href}'
      let stopped = false
      const onProgress = ({ loaded, total }) => {
        if (stopped || loaded < total * 0.4) return
        stopped = true
        process.send('stopping', () => process.kill(process.pid, 'SIGSTOP'))
      }
      await pullModel('${ID}', { ...${JSON.stringify(options(root))}, onProgress }).then(
        () => process.send('finished'),
        error => process.send(error.code ?? String(error)),
      )`
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    expect(await once(child, 'message')).toEqual(['stopping', undefined])
    const before = hub.sent()
    const lockPace = { touchMs: 20, pollMs: 10, silentPolls: 30 }
    await pullModel(ID, options(root, { lockPace }))
    expect(hub.sent() - before).toBeLessThan(0.9 * sourceBytes) // what was whole was not downloaded again
    await expectPacked(root)
    const told = once(child, 'message')
    child.kill('SIGCONT')
    expect(await told).toEqual(['LOCK_LOST', undefined])
    await expectPacked(root)
  })
})

/** Pulls in a process of its own that is killed when so much has come. */
function pullAndDie(root: string, share: number): Promise<NodeJS.Signals | null> {
  const program = `
    import { pullModel } from '${new URL('../../../dist/files/hub/pullModel.js', import.meta.url).href}'
    const onProgress = ({ loaded, total }) => { if (loaded >= total * ${share}) process.kill(process.pid, 'SIGKILL') }
    await pullModel('${ID}', { ...${JSON.stringify(options(root))}, onProgress })`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' })
  return new Promise(resolve => child.on('close', (_, signal) => resolve(signal)))
}
