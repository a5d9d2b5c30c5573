// The commands that measure: bench, trace, simulate and doctor, on small models.
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { decodeTrace } from '#moeflux/lab/traces/routingTrace.js'
import { moeflux } from './moeflux.js'

let home: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'moeflux-measure-'))
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

const run = (...args: string[]) => moeflux(args, { env: { MOEFLUX_HOME: home } })
const runWith = (input: string, ...args: string[]) => moeflux(args, { input, env: { MOEFLUX_HOME: home } })

describe('moeflux bench', () => {
  test('measures the built-in model and counts what was read', async () => {
    const { code, stdout, stderr } = await run(
      ...'bench --prompt 40 --tokens 8 --repeat 2 --expert-memory 2MB --no-prefetch --cold --json'.split(' '),
    )
    expect(stderr).toBe('')
    expect(code).toBe(0)
    const report = JSON.parse(stdout)
    expect(report).toMatchObject({ runs: 2, promptTokens: 40, decodeTokens: 8, cold: process.platform === 'linux' })
    expect(report.decodeRuns).toHaveLength(2)
    expect(report.decodeTokensPerSecond).toBeGreaterThan(0)
    expect(report.timeToFirstTokenMs).toBeGreaterThan(0)
    // A cache of two megabytes cannot hold the experts: every miss is one read of one expert.
    expect(report.decode.bytesRead).toBe((report.decode.misses + report.decode.prefetchReads) * report.disk.readBytes)
    expect(report.decode.hitRate).toBeLessThan(0.9)
    expect(report.disk.speeds.map((speed: { depth: number }) => speed.depth)).toEqual([1, 4, 8])
    expect(report.peakRssBytes).toBeGreaterThan(2e7)
  })

  test('lets several sequences decode together, beside one alone', async () => {
    const flags = 'bench --prompt 8 --tokens 6 --repeat 2 --sequences 3 --threads 1 --no-warmup --no-disk'.split(' ')
    const { stdout, code } = await run(...flags, '--json')
    expect(code).toBe(0)
    const { together, decodeRuns, decode } = JSON.parse(stdout)
    expect(together).toMatchObject({ sequences: 3, runs: [expect.any(Number), expect.any(Number)] })
    const ratios = together.runs.map((rate: number, i: number) => rate / decodeRuns[i])
    expect(together.timesOne).toBeCloseTo((ratios[0] + ratios[1]) / 2)
    expect(decode.tokens).toBe(12) // what ran together is not counted among the others
    expect((await run(...flags)).stdout).toMatch(
      /^ *together +3 sequences, [\d.]+ tok\/s \([\d.]+ each\), [\d.]+ times one alone$/m,
    )
  })

  test('guesses ahead, and says how that went', async () => {
    const flags = 'bench --prompt 20 --tokens 12 --repeat 1 --no-warmup --no-disk --backend wasm --drafts 2'.split(' ')
    const { stdout, code } = await run(...flags, '--accept', '1', '--sequences', '2', '--json')
    expect(code).toBe(0)
    const { drafts, accept, decode } = JSON.parse(stdout)
    expect({ accept, tokens: decode.tokens }).toEqual({ accept: 1, tokens: 12 })
    expect(drafts).toMatchObject({ guesses: 24, accepted: 24, rounds: 12, now: 2 }) // alone, and two together
    expect(await run(...flags)).toMatchObject({ code: 2, stderr: expect.stringContaining('--greedy') })
  })

  test('refuses at once what is longer than the context, and warms up within it', async () => {
    const { code, stdout, stderr } = await run('bench', '--prompt', '5000', '--no-disk')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(
      /^error: the prompt has 5000 tokens and the answer may take 64, too long by 968 for .* of 4096 tokens\n$/,
    )
    const small = 'bench --context 8 --prompt 5 --tokens 3 --repeat 1 --threads 1 --no-disk'.split(' ')
    expect(await run(...small)).toMatchObject({ code: 0, stderr: '' })
  })

  test('refuses flags that cannot act', async () => {
    expect(await run('bench', '--skew', '1')).toMatchObject({ code: 2 })
    expect(await run('bench', '--synthetic', 'a3b:1', '--model', 'demo')).toMatchObject({ code: 2 })
    expect(await run('bench', '--synthetic', 'a4b')).toMatchObject({ code: 2 })
  })
})

describe('moeflux trace and simulate', () => {
  test.each(['wasm', 'reference'])('predicts the hit rate that the engine counted, on %s', async backend => {
    const file = join(home, `${backend}.trace`)
    const flags = ['--backend', backend, '--expert-memory', '4MB', '--tokens', backend === 'wasm' ? '150' : '20']
    const kept = backend === 'wasm' ? [] : ['--weights', '--token-ids'] // which the other does without
    const traced = await run('trace', 'Once there was a fox who', '-o', file, ...flags, ...kept)
    expect(traced).toMatchObject({ code: 0, stdout: '' })
    expect(statSync(file).size).toBeLessThan(20_000)
    if (kept.length > 0) {
      const { steps, layers, expertsPerToken } = decodeTrace(readFileSync(file), file)
      const { tokens, weights = new Float32Array(0), ids = [] } = steps[0]
      expect([ids.length, weights.length]).toEqual([tokens, layers * tokens * expertsPerToken])
      const first = weights.slice(0, expertsPerToken).reduce((sum, weight) => sum + weight, 0)
      expect(first).toBeCloseTo(1, 5)
    }
    const { code, stdout } = await run('simulate', file, '--disk', '2GB', '--json')
    expect(code).toBe(0)
    const { engine, rows } = JSON.parse(stdout)
    expect(engine.slots).toBeGreaterThan(16)
    expect(Math.abs(engine.simulatedHitRate - engine.countedHitRate)).toBeLessThan(0.01)
    expect(rows).toHaveLength(18)
    for (const row of rows) expect(row.tokensPerSecond).toBeGreaterThan(0)
    expect(rows.at(-1).hitRate).toBeGreaterThan(rows[0].hitRate)
    for (let at = 0; at < rows.length; at += 3) {
      const [lru, lrfu, optimum] = rows.slice(at, at + 3)
      expect([lru.policy, lrfu.policy, optimum.policy]).toEqual(['lru', 'lrfu', 'optimum'])
      for (const rate of ['hitRate', 'decodeHitRate']) {
        expect(Math.max(lru[rate], lrfu[rate])).toBeLessThanOrEqual(optimum[rate])
      }
    }
  })

  test('prints a table, and names a file that is no trace', async () => {
    const table = await run('simulate', join(home, 'wasm.trace'), '--budgets', '2MB,4MB', '--disk', '1GB')
    expect(table.code).toBe(0)
    expect(table.stdout).toMatch(/slots +policy +hits/)
    expect(table.stdout.trimEnd().split('\n')).toHaveLength(4 + 1 + 6)
    const bad = await run('simulate', join(import.meta.dirname, 'moeflux.ts'))
    expect(bad.code).toBe(1)
    expect(bad.stderr).toContain('is not a trace')
  })

  test('replays against three tiers, every size of the GPU with every size of memory', async () => {
    const file = join(home, 'wasm.trace')
    const flags = [file, '--gpu', '1MB,25%', '--memory', '3MB,50%', '--disk', '1GB', '--cpu', '20GB']
    const { rows, engine } = JSON.parse((await run('simulate', ...flags, '--json')).stdout)
    expect(rows).toHaveLength(2 * 2 * 3)
    expect(engine.slots).toBeGreaterThan(16)
    for (const row of rows) {
      expect(row.gpuRate + row.memoryRate + row.diskRate).toBeCloseTo(1, 10)
      expect(row.gpuBytes).toBe(row.gpuSlots * 55_296)
      if (row.policy === 'optimum') continue
      expect(row.tokensPerSecond).toBeGreaterThan(0)
      const { gpuRate, diskRate } = rows.find(
        (other: typeof row) =>
          other.policy === 'optimum' && other.gpuSlots === row.gpuSlots && other.memorySlots === row.memorySlots,
      )
      expect(row.gpuRate).toBeLessThanOrEqual(gpuRate)
      expect(row.diskRate).toBeGreaterThanOrEqual(diskRate)
    }
    const { stdout } = await run('simulate', ...flags)
    expect(stdout).toMatch(/GPU +memory +policy +on GPU +in RAM +on disk/)
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test('prints comma-separated values that hold what JSON holds', async () => {
    const file = join(home, 'wasm.trace')
    for (const flags of [[], ['--gpu', '25%', '--memory', '25%']]) {
      const both = [file, ...flags, '--disk', '1GB']
      const [csv, json] = await Promise.all([run('simulate', ...both, '--csv'), run('simulate', ...both, '--json')])
      expect(csv).toMatchObject({ code: 0, stderr: '' })
      const [names, ...lines] = csv.stdout
        .trimEnd()
        .split('\n')
        .map(line => line.split(','))
      const value = (text: string) => (text === '' ? null : Number.isNaN(Number(text)) ? text : Number(text))
      const rows = lines.map(line => Object.fromEntries(names.map((name, i) => [name, value(line[i])])))
      expect(rows).toEqual(JSON.parse(json.stdout).rows)
    }
  })

  test('replays several traces as one, and refuses what does not go together', async () => {
    const file = join(home, 'wasm.trace')
    const [once, twice] = await Promise.all(
      [[file], [file, file]].map(async files => {
        const { stdout } = await run('simulate', ...files, '--budgets', '14.2MB', '--disk', '1GB', '--json')
        return JSON.parse(stdout)
      }),
    )
    expect(twice.engine).toBeNull()
    expect(1 - twice.rows[1].hitRate).toBeCloseTo((1 - once.rows[1].hitRate) / 2, 10)
    for (const flags of [
      ['--memory', '1MB'],
      ['--gpu', '1MB', '--budgets', '1MB'],
      ['--gpu', '1MB', '--memory', '1kB'],
      ['--csv', '--json'],
    ]) {
      expect(await run('simulate', file, '--disk', '1GB', ...flags)).toMatchObject({ code: 2, stdout: '' })
    }
  })
})

describe('moeflux trace', () => {
  test('refuses an empty prompt, given or from a file', async () => {
    const empty = join(home, 'empty.txt')
    const file = join(home, 'empty.trace')
    writeFileSync(empty, '\n')
    const refused = { code: 2, stdout: '', stderr: 'error: the prompt is empty\n' }
    expect(await run('trace', '', '-o', file)).toEqual(refused)
    expect(await run('trace', '--prompt-file', empty, '-o', file)).toEqual(refused)
    expect(existsSync(file)).toBe(false)
  })

  test('reads its prompt from a pipe, asked for or not, and says what it uses without one', async () => {
    const flags = ['--tokens', '4', '--backend', 'reference', '-o']
    const fox = 'Once there was a fox who'
    const file = (name: string) => join(home, `${name}.trace`)
    expect(await run('trace', fox, ...flags, file('argument'))).toMatchObject({ code: 0 })
    expect(await runWith(`${fox}\n`, 'trace', ...flags, file('pipe'))).toMatchObject({ code: 0 })
    expect(await runWith(fox, 'trace', '-', ...flags, file('dash'))).toMatchObject({ code: 0 })
    const steps = (name: string) => decodeTrace(readFileSync(file(name)), name).steps
    expect(steps('pipe')).toEqual(steps('argument'))
    expect(steps('dash')).toEqual(steps('argument'))
    expect((await runWith('', 'trace', '-', ...flags, file('none'))).stderr).toBe('error: the prompt is empty\n')
    const { code, stderr } = await run('trace', ...flags, file('none'))
    expect(code).toBe(0)
    expect(stderr).toContain("no prompt given; starting with 'Once upon a time there was a little dog who'\n")
  })

  test('says before the work that its file cannot be written', async () => {
    // Of a model that is not there it would say so next.
    const trace = (file: string) => run('trace', 'hi', '--model', 'no-such-model', '-o', file)
    const lost = await trace(join(home, 'no', 'such', 'folder', 'x'))
    expect(lost).toMatchObject({ code: 1, stderr: expect.stringMatching(/^error: .*no.such.folder.x.*\n$/) })
    expect(await trace(home)).toMatchObject({ code: 1, stderr: expect.stringContaining('is a folder, not a file') })
    const old = join(home, 'old.trace')
    writeFileSync(old, 'kept')
    for (const file of [old, join(home, 'new.trace')]) {
      expect(await trace(file)).toMatchObject({ code: 1, stderr: expect.stringContaining('no-such-model') })
    }
    expect(readFileSync(old, 'utf8')).toBe('kept')
    expect(existsSync(join(home, 'new.trace'))).toBe(false)
  })

  test('refuses at once what is longer than the context', async () => {
    const file = join(home, 'long.trace')
    const { code, stderr } = await run('trace', 'hi', '-o', file, '--context', '20', '--tokens', '30')
    expect(code).toBe(1)
    expect(stderr).toMatch(
      /^error: the prompt has \d tokens and the answer may take 30, too long by \d+ for .* of 20 tokens\n$/,
    )
    expect(existsSync(file)).toBe(false)
  })
})

describe('moeflux doctor', () => {
  test('says what the machine has, what auto would choose and why', async () => {
    const { code, stdout } = await run('doctor', '--json')
    expect(code).toBe(0)
    const findings = JSON.parse(stdout)
    expect(findings.wasm.simd).toMatch(/^(dot-product|relaxed|baseline)$/)
    expect(findings.memory.free).toBeGreaterThan(0)
    expect(findings.disk.speeds).toHaveLength(3)
    expect(findings.auto.reason).not.toBe('')
    const text = await run('doctor', '--model', 'demo', '--no-disk')
    expect(text.stdout).toContain('auto: backend')
    expect(text.stdout).toContain('fits in memory')
    const isOld = Number.parseInt(process.versions.node, 10) < 24
    expect(text.stdout.includes('- Node 24 or newer is up to a sixth faster')).toBe(isOld)
    expect(text.stdout).toContain('docs/troubleshooting.md')
  })
})
