// The disk that a pull needs, told before anything is downloaded: what it says of the packed model is what packing gives, and
// no more is ever on the disk than it said.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { pullModel } from '#moeflux/files/hub/pullModel.js'
import { planPull } from '#moeflux/files/hub/pullPlan.js'
import { missingBytes, type PullSize, sizePull } from '#moeflux/files/hub/pullSize.js'
import { MAIN } from '../../apps/cli/moeflux.js'
import { onSmallDisk, smallDiskMissing } from '../../support/faults/smallDisk.js'
import { tinyGguf } from '../../support/models/ggufModel.js'
import { demoSource, repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { type HubServer, startHub } from './hubServer.js'

const GGUF_ID = 'people/tiny-GGUF'
const MB = 1e6
const quantized = new Uint8Array(readFileSync(join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')))
const download = { rangeBytes: 256 * 1024, parallel: 2, retryMs: 5 }

let hub: HubServer
afterEach(() => hub?.close())

async function startGgufHub(): Promise<void> {
  hub = await startHub(
    GGUF_ID,
    new Map([
      ['m-Q4_K_M.gguf', quantized],
      ['m-BF16.gguf', tinyGguf()],
    ]),
  )
}

async function startDemoHub(): Promise<void> {
  hub = await startHub(
    'people/demo',
    new Map(readdirSync(demoSource).map(name => [name, readFileSync(join(demoSource, name))])),
  )
}

describe('the size of a pull', () => {
  test.each([
    ['Q4_K_M', {}],
    ['BF16', {}],
    ['BF16', { bits: 8, groupSize: 32, experts2bit: true }],
    ['BF16', { bits: 16 }],
  ] as const)('of a GGUF file in %s with %j is what packing gives, by the header alone', async (precision, options) => {
    await startGgufHub()
    const plan = await planPull(`${GGUF_ID}:${precision}`, { endpoint: hub.url })
    const size = await sizePull(plan, options)
    const asked = hub.requests.filter(({ path }) => path.endsWith('.gguf'))
    expect(asked.map(({ range }) => range)).toEqual([expect.stringMatching(/^bytes=0-\d+$/)]) // once
    const { bytes } = await pullModel(plan, { ...options, root: temporaryFolder(), download })
    expect(size.packedBytes).toBe(bytes)
    expect(size.bytes.resident + size.bytes.allExperts).toBeLessThanOrEqual(bytes)
    expect(missingBytes(size)).toBe(plan.downloadBytes + bytes)
  })

  test('of a GGUF model in parts counts all of them', async () => {
    const parts = [1, 2, 3].map(part => `tiny-dense-Q4_0-0000${part}-of-00003.gguf`)
    const files = parts.map((name): [string, Uint8Array] => [
      name,
      readFileSync(join(repository, 'test/data/gguf', name)),
    ])
    hub = await startHub(GGUF_ID, new Map(files))
    const plan = await planPull(`${GGUF_ID}:Q4_0`, { endpoint: hub.url })
    const size = await sizePull(plan)
    const { bytes } = await pullModel(plan, { root: temporaryFolder(), download })
    expect(size.packedBytes).toBe(bytes)
    expect(missingBytes(size)).toBe(files.reduce((sum, [, { length }]) => sum + length, bytes))
  })

  test('of safetensors is never less than what is on the disk', async () => {
    await startDemoHub()
    hub.behaviour.pauseMs = 1
    const plan = await planPull('people/demo', { endpoint: hub.url })
    const needed = missingBytes(await sizePull(plan))
    const root = temporaryFolder()
    let peak = 0
    const watch = setInterval(() => (peak = Math.max(peak, blocksBelow(root))), 5)
    await pullModel(plan, { root, download })
    clearInterval(watch)
    expect(peak).toBeGreaterThan(0.6 * needed)
    expect(peak).toBeLessThan(1.02 * needed)
  })

  test('shrinks with what is there, to nothing', () => {
    const size = { packedBytes: 100, downloadBytes: 120, keptBytes: 20, passingBytes: 40 } as PullSize
    expect([0, 40, 80, 100, 119, 120, 200].map(there => missingBytes(size, there))).toEqual([160, 120, 80, 40, 2, 0, 0])
    const gguf = { packedBytes: 52, downloadBytes: 43, keptBytes: 43, passingBytes: 0 } as PullSize
    expect([0, 43, 95].map(there => missingBytes(gguf, there))).toEqual([95, 52, 0])
    const nothing = { packedBytes: 0, downloadBytes: 0, keptBytes: 0, passingBytes: 0 } as PullSize
    expect(missingBytes(nothing)).toBe(0)
  })

  test('is refused of a config.json that nobody would write', async () => {
    hub = await startHub('people/demo', new Map([['config.json', new Uint8Array(2 ** 24 + 1)]]))
    const plan = await planPull('people/demo', { endpoint: hub.url })
    await expect(sizePull(plan)).rejects.toThrow('config.json: 16777217 bytes, want at most')
  })
})

describe('a disk that is too small', () => {
  const onDisk = (name: string, bytes: () => Promise<number>, program: () => string, check: (told: unknown) => void) =>
    test(name, async context => {
      if (smallDiskMissing !== null) context.skip(smallDiskMissing)
      check(await onSmallDisk(await bytes(), program()))
    })
  const dist = new URL('../../../dist/', import.meta.url).href
  const pull = (id: string) => `
    import { readdirSync } from 'node:fs'
    import { pullModel } from '${dist}files/hub/pullModel.js'
    const options = { root: disk + '/store', endpoint: '${hub.url}', download: ${JSON.stringify(download)} }
    const error = await pullModel('${id}', options).then(() => null, error => error)
    tell({ message: error && error.message.slice(disk.length), left: readdirSync(disk, { recursive: true }).length })`

  /** Of the file and of its packed form, and a little more for small files. */
  const ggufBytes = async () => {
    await startGgufHub()
    return missingBytes(await sizePull(await planPull(`${GGUF_ID}:Q4_K_M`, { endpoint: hub.url })))
  }

  onDisk(
    'for a GGUF file and its packed form refuses it before it is downloaded, and leaves nothing',
    async () => (await ggufBytes()) - 0.3 * MB,
    () => pull(`${GGUF_ID}:Q4_K_M`),
    told => {
      expect(told).toEqual({
        message: expect.stringMatching(/^\/store: needs 7\.\d\d MB of disk, 6\.\d\d MB are free$/),
        left: 0,
      })
      expect(hub.sent()).toBeLessThan(quantized.length)
    },
  )

  onDisk(
    'is large enough with room for both',
    async () => (await ggufBytes()) + 0.3 * MB,
    () => pull(`${GGUF_ID}:Q4_K_M`),
    told => expect(told).toMatchObject({ message: null }),
  )

  onDisk(
    'is told by inspect, and before run and pull begin, with what is free',
    async () => {
      await startDemoHub()
      return 30 * MB
    },
    () => `
      import { spawnSync } from 'node:child_process'
      const env = { ...process.env, MOEFLUX_HOME: disk, HF_ENDPOINT: '${hub.url}', HF_TOKEN: '' }
      const run = (...args) => {
        const made = spawnSync(process.execPath, [${JSON.stringify(MAIN)}, ...args], { env, encoding: 'utf8' })
        return { ...made, stderr: made.stderr.replaceAll(disk, 'DISK') }
      }
      const inspected = ['people/demo', 'a17b'].map(name => run('inspect', name).stdout)
      const first = run('pull', 'people/demo')
      const second = run('run', '--yes', '-q', '-m', 'people/demo', 'Hi')
      fill()
      const last = run('pull', 'people/demo')
      tell({ inspected, runs: [first, second, last].map(({ status, stderr }) => ({ status, stderr })) })`,
    told => {
      const { inspected, runs } = told as { inspected: string[]; runs: { stderr: string }[] }
      const verdict = (needed: string) =>
        new RegExp(`verdict +needs ${needed} of disk, 30\\.0 MB are free; with more disk: (fits|runs|too small)`)
      expect(inspected).toEqual([expect.stringMatching(verdict('40\\.7 MB')), expect.stringMatching(verdict('223 GB'))])
      expect(inspected.join()).not.toContain('downloads it')
      const refusal = (free: string) =>
        `error: DISK \\(MOEFLUX_HOME sets another place\\): needs 40.7 MB of disk, ${free} are free\n$`
      expect(runs).toEqual([
        { status: 1, stderr: expect.stringMatching(refusal('30.0 MB')) },
        { status: 1, stderr: expect.stringMatching(`^${refusal('30.0 MB')}`) },
        { status: 1, stderr: expect.stringMatching(refusal('0 B')) },
      ])
      const [{ stderr }] = runs
      expect(stderr).toMatch(
        /^people\/demo:\n {2}download +20\.4 MB, .*\n {2}disk +40\.7 MB at most, 20\.4 MB packed; 30\.0 MB free in DISK\n/,
      )
      expect(hub.sent()).toBeLessThan(MB)
    },
  )
})

function blocksBelow(folder: string): number {
  if (!existsSync(folder)) return 0
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce((sum, entry) => {
    const info = entry.isFile() ? statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false }) : undefined
    return sum + (info?.blocks ?? 0) * 512
  }, 0)
}
