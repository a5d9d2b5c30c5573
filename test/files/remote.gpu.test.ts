// Models on a server, opened in Node by ranges: what is fetched, what is kept, and what a server that goes away does.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openRemoteFolder } from '#moeflux/files/remote/nodeRemoteFolder.js'
import { S3Client } from '#moeflux/files/remote/s3Client.js'
import { demoModelPath, openModel } from '#moeflux/index.js'
import { startS3 } from '../../src/lab/scaleOut/servers.mjs'
import { moeflux } from '../apps/cli/moeflux.js'
import { RangeServer } from '../support/servers/rangeServer.js'
import '../support/gpu/swiftShader.js'

const home = mkdtempSync(join(tmpdir(), 'moeflux-remote-'))
const before = process.env.MOEFLUX_HOME
let server: RangeServer
let url: string
const options = { backend: 'wasm', threads: 1, prefetch: false } as const
const prompt = { prompt: 'Tell me a story', maxTokens: 8, temperature: 0 }

beforeAll(async () => {
  process.env.MOEFLUX_HOME = home
  server = await RangeServer.start({ mounts: { '/model/': demoModelPath() } })
  url = `${server.origin}/model`
})

afterAll(async () => {
  await server.stop()
  if (before === undefined) delete process.env.MOEFLUX_HOME
  else process.env.MOEFLUX_HOME = before
  rmSync(home, { recursive: true, force: true })
})

async function answer(place: string, more: object = {}) {
  const model = await openModel(place, { ...options, ...more })
  try {
    const { text } = await model.generate(prompt)
    return { text, stats: model.stats() }
  } finally {
    await model.close()
  }
}

let fromDisk: Promise<string> | undefined
/** What is to be answered. */
function localText(): Promise<string> {
  fromDisk ??= answer(demoModelPath()).then(({ text }) => text)
  return fromDisk
}

const expertBytes = () =>
  server.log.filter(({ path }) => path.includes('/packed_experts/')).reduce((sum, { bytes }) => sum + bytes, 0)

function cachedBytes(): number {
  const files = readdirSync(join(home, 'remote'), { recursive: true, withFileTypes: true })
  return files
    .filter(file => file.isFile())
    .reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0)
}

describe('a model on a server', () => {
  test('answers as it does from a disk, with no more fetched than the resident part and the experts it used', async () => {
    const remote = await answer(url)
    expect(remote.text).toBe(await localText())
    const whole = readdirSync(join(demoModelPath(), 'packed_experts')).reduce(
      (sum, name) => sum + statSync(join(demoModelPath(), 'packed_experts', name)).size,
      0,
    )
    // Against the server's own log: each expert that a token was routed to, once.
    expect(expertBytes()).toBe(remote.stats.bytesRead)
    expect(expertBytes()).toBeLessThan(whole)
    const weights = server.log.filter(({ path }) => path.endsWith('model_weights.bin'))
    // All of them but the end, where the head for drafts lies, which nobody asked for.
    const fetched = weights.reduce((sum, { bytes }) => sum + bytes, 0)
    const { size } = statSync(join(demoModelPath(), 'model_weights.bin'))
    expect(fetched).toBeLessThan(size)
    expect(fetched).toBeGreaterThan(0.9 * size)
  })

  test('is fetched once: what is on the disk is not asked for again', async () => {
    server.log.length = 0
    const { text } = await answer(url)
    expect(text).toBe(await localText())
    expect(expertBytes()).toBe(0)
    expect(server.log.filter(({ path }) => path.endsWith('model_weights.bin'))).toEqual([])
  })

  test('mends a piece on the disk that is damaged', async () => {
    const remote = join(home, 'remote')
    for (const folder of readdirSync(remote)) {
      const [piece] = readdirSync(join(remote, folder))
      const path = join(remote, folder, piece)
      const bytes = readFileSync(path)
      bytes[bytes.length >> 1] ^= 1
      const { writeFileSync } = await import('node:fs')
      writeFileSync(path, bytes)
    }
    expect((await answer(url)).text).toBe(await localText())
  })

  test('stays within the disk that it may use, and does without any', async () => {
    rmSync(join(home, 'remote'), { recursive: true, force: true })
    const { text } = await answer(url, { modelCache: '3MB' })
    expect(cachedBytes()).toBeLessThanOrEqual(3e6)
    rmSync(join(home, 'remote'), { recursive: true, force: true })
    expect((await answer(url, { modelCache: 0 })).text).toBe(text)
    expect(() => cachedBytes()).toThrow()
  })

  for (const backend of ['wasm', 'webgpu'] as const) {
    test(`fails with an error that says what is missing when its server goes, and goes on when that is back, on ${backend}`, async () => {
      const own = { ...options, backend, precision: 'exact', modelCache: 0 } as const
      const word = { prompt: 'Once', maxTokens: 12, temperature: 0 } // little work for an emulated GPU
      const local = await openModel(demoModelPath(), { ...options, precision: 'exact' })
      const { text: right } = await local
        .createSession()
        .complete({ ...word, maxTokens: 3 })
        .answer()
      await local.close()
      const model = await openModel(url, own)
      try {
        const begun = expertBytes()
        // In the middle of an answer: what was answered so far was routed to experts that came.
        const tokens: string[] = []
        const broken = async () => {
          for await (const event of model.createSession().complete(word)) {
            if (event.type !== 'text') continue
            tokens.push(event.text)
            server.faults = { path: /packed_experts/, refuse: true }
          }
        }
        const error = await broken().catch(error => error)
        expect(error).toMatchObject({ code: 'EXPERT_READ' })
        expect(error.message).toContain('packed_experts/layer_')
        expect(tokens.length).toBeGreaterThan(0)
        expect(expertBytes()).toBeGreaterThan(begun)
        server.faults = {}
        expect(
          (
            await model
              .createSession()
              .complete({ ...word, maxTokens: 3 })
              .answer()
          ).text,
        ).toBe(right)
      } finally {
        server.faults = {}
        await model.close()
      }
    })
  }

  test('is refused with a reason where there is none, or none that can be read in parts', async () => {
    await expect(openModel(`${server.origin}/nothing`, options)).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
    server.faults = { path: /\.bin$/, noRanges: true }
    await expect(openModel(url, { ...options, modelCache: 0 })).rejects.toMatchObject({ code: 'NO_RANGES' })
    server.faults = {}
  })

  test('is run from the command line', async () => {
    const { stdout, code } = await moeflux(
      ['run', '--model', url, '--max-tokens', '8', '--temp', '0', 'Tell me a story'],
      {
        env: { MOEFLUX_HOME: home },
      },
    )
    expect(code).toBe(0)
    expect(stdout.trim()).toBe((await localText()).trim())
  })

  test('is read from S3', async () => {
    const s3 = await startS3()
    try {
      for (const [key, value] of Object.entries(s3.env)) process.env[key] = value
      const place = s3.url.replace('/states?', '/models/demo?')
      const client = await S3Client.open(place)
      for (const file of readdirSync(demoModelPath(), { recursive: true, withFileTypes: true })) {
        if (!file.isFile()) continue
        const path = join(file.parentPath, file.name)
        const name = path
          .slice(demoModelPath().length)
          .replace(/^[\\/]/, '')
          .replaceAll('\\', '/')
        await client.request('PUT', name, [200], { body: new Uint8Array(readFileSync(path)) })
      }
      const folder = await openRemoteFolder(place, { cacheBytes: 0 })
      expect(await folder.readText('config.json')).toBe(readFileSync(join(demoModelPath(), 'config.json'), 'utf8'))
      expect((await answer(place)).text).toBe(await localText())
    } finally {
      await s3.stop()
    }
  })
})
