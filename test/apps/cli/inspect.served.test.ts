// `moeflux inspect`: sizes and plans for models and machines, without loading anything.
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { formatBytes, formatInteger } from '#moeflux/apps/cli/format.js'
import { repository, temporaryFolder } from '../../support/models/packedFiles.js'
import { moeflux } from './moeflux.js'

describe('moeflux inspect', () => {
  test.each([
    {
      preset: 'a3b',
      bytes: {
        expert: 1_769_472,
        expert2Bit: 983_040,
        allExperts: 18_119_393_280,
        resident: [1.385e9, 1.395e9],
        kvPerToken: 40_960,
        recurrentState: [65.5e6, 66.5e6],
      },
    },
    {
      preset: 'a17b',
      bytes: {
        expert: 7_077_888,
        expert2Bit: 3_932_160,
        allExperts: 217_432_719_360,
        resident: [5.56e9, 5.58e9],
        kvPerToken: 61_440,
        recurrentState: [194.5e6, 195.5e6],
      },
    },
  ])('knows the sizes of $preset', async ({ preset, bytes }) => {
    const { code, stdout } = await moeflux(['inspect', preset, '--json'])
    expect(code).toBe(0)
    const got = JSON.parse(stdout).bytes
    for (const [name, want] of Object.entries(bytes)) {
      if (typeof want === 'number') expect(got[name], name).toBe(want)
      else {
        expect(got[name], name).toBeGreaterThan(want[0])
        expect(got[name], name).toBeLessThan(want[1])
      }
    }
  })

  test('says what fits a given machine and what it reads from disk', async () => {
    const plan = async (...options: string[]) =>
      JSON.parse((await moeflux(['inspect', 'a3b', '--json', ...options])).stdout).estimate
    const speeds = ['--read-speed', '1GB', '--compute-speed', '1000GB']
    const small = await plan('--memory', '1GB', ...speeds)
    const half = await plan('--memory', '10GB', '--context', '1', ...speeds)
    const whole = await plan('--memory', '64GB', ...speeds)
    expect([small.fits, half.fits, whole.fits]).toEqual(['no', 'streaming', 'everything'])
    expect(whole.readPerToken).toBe(0)
    // 40 layers × 8 experts × 1.77 MB, of which the uncached share is read at 1 GB/s.
    expect(half.readPerToken).toBeCloseTo(40 * 8 * 1_769_472 * (1 - half.cachedShare), 0)
    expect(half.tokensPerSecond).toBeCloseTo(1e9 / half.readPerToken, 3)
  })

  test.each([
    ['1.2GB', '4096'], // three quarters of it are less than the resident part
    ['2GB', '4096'], // the resident part, and no room for the context
    ['2.174GB', '4096'], // both, and no room for experts
    ['10GB', '262144'], // the context alone takes more
  ])('says how much is missing of %s for %s tokens', async (memory, context) => {
    const options = ['inspect', 'a3b', '--memory', memory, '--context', context]
    const [text, json] = await Promise.all([moeflux(options), moeflux([...options, '--json'])])
    const { bytes, estimate } = JSON.parse(json.stdout)
    expect(estimate.fits).toBe('no')
    expect(estimate.leastMemory).toBe(bytes.resident + estimate.stateBytes + 2 * 8 * bytes.expert)
    const usable = Number.parseFloat(memory) * 0.75e9 // the rest is the system's
    const missing = formatBytes(estimate.leastMemory - usable)
    expect(text.stdout).toContain(
      `too small by ${missing}: the resident part, ${formatInteger(Number(context))} tokens and a token's experts ` +
        `of two layers take ${formatBytes(estimate.leastMemory)}\n`,
    )
  })

  test('leaves room for the system, says what the disk has free, and names the next command', async () => {
    const { stdout } = await moeflux(['inspect', 'qwen3.5-4b', '--memory', '16GB'])
    expect(stdout).toContain('16.0 GB; planned with 12.0 GB')
    expect(stdout).toMatch(/disk +[\d.]+ [GT]B free in .*; takes\s+2\.37 GB/)
    expect(stdout).toContain('moeflux run -m qwen3.5-4b "Hello"')
    expect(stdout).toMatch(/verdict +fits in memory\n/)
    const { stdout: large } = await moeflux(['inspect', 'a3b', '--memory', '64GB'])
    expect(large).toContain('64.0 GB; planned with 60.0 GB')
    const { stdout: doctor } = await moeflux(['doctor', '--no-disk', '--model', 'a3b'])
    expect(doctor).toMatch(/disk: free +[\d.]+ [GT]B for models, in /)
    expect(doctor).toContain('next: moeflux run -m a3b "Hello"')
  })

  describe('for a GPU', () => {
    const speeds = ['--read-speed', '2GB', '--compute-speed', '60GB', '--gpu-speed', '500GB']
    const plan = async (gpu: string, memory: string) => {
      const { stdout } = await moeflux(['inspect', 'a3b', '--json', '--gpu', gpu, '--memory', memory, ...speeds])
      return JSON.parse(stdout).gpu
    }

    test('says which experts go to the GPU, to memory and to disk, and the speed of that', async () => {
      const [small, little, whole] = await Promise.all([plan('8GB', '32GB'), plan('8GB', '8GB'), plan('24GB', '32GB')])
      for (const { experts } of [small, little]) expect(experts.gpu + experts.memory + experts.disk).toBe(40 * 256)
      expect(small.experts).toMatchObject({ disk: 0 })
      expect(small.experts.gpu * 1_769_472).toBeGreaterThan(4e9)
      expect(small.experts.gpu * 1_769_472).toBeLessThan(7e9)
      expect(little.experts.gpu).toBe(small.experts.gpu)
      expect(little.experts.disk).toBeGreaterThan(1000)
      expect(whole.experts).toMatchObject({ memory: 0, disk: 0 })
      const [a, b, c] = [little, small, whole].map(({ tokensPerSecond }) => tokensPerSecond)
      expect([a, b, c]).toEqual([a, b, c].sort((x, y) => x - y))
      // A token's missing experts at 60 GB/s, and 100 µs for each layer: nearly all of them miss.
      const missed = 320 * (1 - small.experts.gpu / 10_240)
      const seconds = (missed * 1_769_472) / 60e9 + 40 * 100e-6
      expect(1 / b).toBeGreaterThan(seconds * 0.98)
      expect(1 / b).toBeLessThan(seconds + 0.004)
    })

    test('says by how much one is too small', async () => {
      expect(await plan('1GB', '32GB')).toMatchObject({ missing: expect.any(Number), tokensPerSecond: null })
      const { stdout } = await moeflux(['inspect', 'a3b', '--gpu', '1GB', '--memory', '32GB', ...speeds])
      expect(stdout).toMatch(/With a GPU of 1.00 GB\n.*too small by \d/)
    })

    test('shows the same for people, also in doctor', async () => {
      const inspected = await moeflux(['inspect', 'a3b', '--gpu', '8GB', '--memory', '32GB', ...speeds])
      expect(inspected.stdout).toMatch(/on the GPU +[\d,]+ experts, \d+/)
      expect(inspected.stdout).toMatch(/in memory +[\d,]+ experts, [\d.]+%, computed by the CPU/)
      const examined = await moeflux(['doctor', '--gpu', '8GB', '--no-disk'])
      expect(examined.stdout).toMatch(/split +.* with 8.00 GB of GPU memory:\n.*plan +GPU: /)
      expect(examined.stdout).toMatch(/expected +[\d.]+ tok\/s/)
    })
  })

  test('shows the same for people', async () => {
    const { stdout, stderr } = await moeflux(['inspect', 'a17b'])
    expect(stdout).toContain('7,077,888')
    expect(stdout).toContain('217,432,719,360')
    expect(stdout).toContain('45 linear attention, 15 full attention')
    expect(stdout).toContain('tok/s')
    expect(stderr).toBe('')
  })

  test('names what it does not find', async () => {
    const { code, stdout, stderr } = await moeflux(['inspect', 'no-such-model'])
    expect(code).toBe(1)
    expect(stdout).toBe('')
    expect(stderr).toMatch(/^error: .*no-such-model.*\n$/)
    for (const args of [
      ['inspect', ''],
      ['verify', ''],
      ['eval', '--tokens', '1', '--model', ''],
    ]) {
      expect(await moeflux(args)).toMatchObject({ code: 1, stderr: "error: '': an empty name is no model\n" })
    }
  })

  test('packs a GGUF file and says what became of its types', async () => {
    const file = join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')
    const env = { MOEFLUX_HOME: temporaryFolder() }
    const { code, stdout, stderr } = await moeflux(['inspect', file], { env })
    expect(code, stderr).toBe(0)
    expect(stderr).toContain('is packed once')
    expect(stdout).toMatch(/Q6_K +0\.92 million weights; 6\.56 bits each, stored as 8-bit blocks in 8\.56; no loss/)
    const verified = await moeflux(['verify', file], { env })
    expect(verified.code).toBe(1)
    expect(verified.stderr).toContain('verify the folder that comes of it')
  })
})
