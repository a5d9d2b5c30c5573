// The commands around packed models, as a user runs them.
import { spawn } from 'node:child_process'
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { demoSource, hashFolder, temporaryFolder, tinySource } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'

describe('convert', () => {
  test('packs a folder, does nothing the second time, and refuses to write over another model', async () => {
    const target = join(temporaryFolder(), 'packed')
    const first = await moeflux(['convert', tinySource, target, '--bits', '8'])
    expect(first).toMatchObject({ code: 0, stdout: '' })
    expect(first.stderr).toMatch(/^packed tiny-bf16 \(HF layout, .*\) in .*\n$/)
    const before = hashFolder(target)
    const second = await moeflux(['convert', tinySource, target, '--bits', '8'])
    expect(second).toMatchObject({ code: 0, stderr: `${target} already holds tiny-bf16\n` })
    const other = await moeflux(['convert', tinySource, target, '--bits', '4'])
    expect(other.code).toBe(1)
    expect(other.stderr).toBe(`error: ${target}: holds another packed model already (tiny-bf16)\n`)
    expect(hashFolder(target)).toEqual(before)
  })

  test('refuses other bits for a quantized source as bad usage, and leaves nothing behind', async () => {
    const target = join(temporaryFolder(), 'packed')
    const result = await moeflux(['convert', demoSource, target, '--bits', '8'])
    expect(result.code).toBe(2)
    expect(result.stderr).toMatch(/^error: --bits: got 8, want 4: .*\n$/)
    expect(existsSync(target)).toBe(false)
  })

  test('does not write into a folder that holds other things', async () => {
    const target = temporaryFolder()
    writeFileSync(join(target, 'thesis.tex'), 'years of work')
    const result = await moeflux(['convert', tinySource, target])
    expect(result.code).toBe(1)
    expect(result.stderr).toMatch(/is not empty/)
    expect([...hashFolder(target).keys()]).toEqual(['thesis.tex'])
  })

  test('says what is missing in one line', async () => {
    const result = await moeflux(['convert', '/nowhere/at/all', temporaryFolder()])
    expect(result).toMatchObject({ code: 1, stderr: 'error: /nowhere/at/all: no such folder\n' })
    const unnamed = await moeflux(['convert', '', temporaryFolder()])
    expect(unnamed).toMatchObject({ code: 1, stderr: "error: '': an empty name is no model\n" })
    const nowhere = await moeflux(['convert', tinySource, ''])
    expect(nowhere).toMatchObject({ code: 1, stderr: "error: '': an empty name is no folder\n" })
    const cut = temporaryFolder()
    const shard = 'model-00002-of-00002.safetensors'
    cpSync(demoSource, cut, { recursive: true, filter: path => !path.endsWith(shard) })
    const index = join(cut, 'model.safetensors.index.json')
    const halved = await moeflux(['convert', cut, temporaryFolder()])
    expect(halved).toMatchObject({ code: 1, stderr: `error: ${index}: shard ${shard}: no such file\n` })
    expect((await moeflux(['convert', tinySource])).code).toBe(2)
    expect((await moeflux(['convert', tinySource, temporaryFolder(), '--bits', '5'])).code).toBe(2)
  })
})

describe('verify, list and rm', () => {
  test('finds every kind of damage', async () => {
    const target = join(temporaryFolder(), 'packed')
    await moeflux(['convert', tinySource, target])
    const sound = await moeflux(['verify', target])
    expect(sound).toMatchObject({ code: 0, stderr: '' })
    expect(sound.stdout).toMatch(/all 10 files of the model are intact\n {2}compared: 10 files, .* SHA-256/)
    const layer = join(target, 'packed_experts/layer_01.bin')
    const bytes = readFileSync(layer)
    bytes[4711] ^= 1
    writeFileSync(layer, bytes)
    appendFileSync(join(target, 'config.json'), ' ')
    rmSync(join(target, 'packed_experts/layer_02.bin'))
    truncateSync(join(target, 'model_weights.bin'), 100)
    const result = await moeflux(['verify', target, '--json'])
    expect(result.code).toBe(1)
    const { ok, problems } = JSON.parse(result.stdout)
    expect(ok).toBe(false)
    expect(problems.map((problem: { code: string }) => problem.code)).toEqual([
      'CHECKSUM_MISMATCH',
      'MISSING_FILE',
      'SIZE_MISMATCH',
      'SIZE_MISMATCH',
    ])
    expect(result.stderr.split('\n').filter(Boolean)).toHaveLength(4)
    expect(result.stderr).toContain(`error: ${join(target, 'packed_experts/layer_02.bin')}: no such file\n`)
  })

  test('never says of files that they are right where nothing was compared: exit code 3, and why', async () => {
    const folder = join(temporaryFolder(), 'packed')
    await moeflux(['convert', tinySource, folder])
    writeFileSync(join(folder, 'tokenizer.json'), '{}')
    writeFileSync(join(folder, 'notes.txt'), 'mine')
    const some = await moeflux(['verify', folder])
    expect(some).toMatchObject({ code: 3, stderr: '' })
    expect(some.stdout).not.toContain('intact')
    expect(some.stdout).toContain('nothing wrong was found, but 1 file could not be compared with anything')
    expect(some.stdout).toContain('  not compared: tokenizer.json: moeflux.json does not list it\n')
    expect(some.stdout).toContain('  not part of the model, and not checked: notes.txt\n')
    rmSync(join(folder, 'moeflux.json'))
    const foreign = await moeflux(['verify', folder, '--json'])
    expect(foreign.code).toBe(3)
    expect(JSON.parse(foreign.stdout)).toMatchObject({
      ...{ folder, ok: true, complete: false, kind: 'packed', compared: [], extra: ['notes.txt'], problems: [] },
      uncompared: expect.arrayContaining([
        { name: 'model_weights.bin', reason: 'there is no moeflux.json', looked: expect.stringContaining('finite') },
      ]),
    })
    const raw = await moeflux(['verify', demoSource])
    expect(raw.code).toBe(3)
    expect(raw.stdout).toContain('not compared: model-00001-of-00002.safetensors: it has no checksum')
    expect(raw.stdout).not.toContain('intact')
  })

  test('show and remove what the store holds, and nothing else', async () => {
    const home = temporaryFolder()
    const env = { MOEFLUX_HOME: home }
    expect(await moeflux(['list'], { env })).toMatchObject({ code: 0, stdout: '' })
    await moeflux(['convert', tinySource, join(home, 'models/org--tiny'), '--name', 'org/tiny', '--experts-2bit'])
    mkdirSync(join(home, 'packed/half'), { recursive: true })
    writeFileSync(join(home, 'packed/half/converting.json'), '{}')
    const list = await moeflux(['list', '--json'], { env })
    expect(JSON.parse(list.stdout)).toMatchObject([
      { id: 'half', state: 'unfinished' },
      { id: 'org--tiny', name: 'org/tiny', state: 'ready', bits: 4, experts2bit: true },
    ])
    expect((await moeflux(['list'], { env })).stdout).toMatch(/^NAME.*\nhalf.*unfinished\norg\/tiny .*4 \+ 2.*\n$/)
    expect(await moeflux(['verify', 'org/tiny'], { env })).toMatchObject({ code: 0 })
    expect((await moeflux(['rm', '../../etc'], { env })).code).toBe(1)
    expect(await moeflux(['rm', 'org/tiny', 'half'], { env })).toMatchObject({ code: 0 })
    expect(hashFolder(home).size).toBe(0)
  })
})

describe('web', () => {
  test('gives each model a folder of its own, also where two have the same name', async () => {
    const folder = temporaryFolder()
    const [first, second, site] = ['first', 'second', 'site'].map(name => join(folder, name))
    await moeflux(['convert', tinySource, first, '--name', 'tiny'])
    await moeflux(['convert', tinySource, second, '--name', 'tiny', '--bits', '8'])
    const { code, stderr } = await moeflux(['web', '--out', site, '-m', first, '-m', second, '-m', first])
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringMatching(/tiny \(.*\), tiny-2 \(/) })
    expect(JSON.parse(readFileSync(join(site, 'models/index.json'), 'utf8')).models).toMatchObject([
      { name: 'tiny', path: 'tiny/' },
      { name: 'tiny-2', path: 'tiny-2/' },
    ])
    expect(hashFolder(join(site, 'models/tiny'))).toEqual(hashFolder(first))
    expect(hashFolder(join(site, 'models/tiny-2'))).toEqual(hashFolder(second))
  })

  test('--preview serves the site as a host should, and leaves nothing', async () => {
    const temporary = temporaryFolder()
    const child = spawn(process.execPath, [MAIN, 'web', '--preview'], { env: { ...process.env, TMPDIR: temporary } })
    const ended = new Promise<number | null>(resolve => child.on('close', resolve))
    let said = ''
    const url = await new Promise<string>((resolve, reject) => {
      child.stderr.setEncoding('utf8').on('data', text => {
        said += text
        const found = /the site is at (http:\/\/127\.0\.0\.1:\d+\/)/.exec(said)
        if (found) resolve(found[1])
      })
      void ended.then(() => reject(new Error(said)))
    })
    const page = await fetch(url)
    expect(await page.text()).toContain('<title>moeflux</title>')
    expect(Object.fromEntries(page.headers)).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-embedder-policy': 'require-corp',
    })
    const { models } = await (await fetch(`${url}models/index.json`)).json()
    const weights = `${url}models/${models[0].path}model_weights.bin`
    const ask = (headers: Record<string, string>, method = 'GET') => fetch(weights, { headers, method })
    const whole = await ask({})
    const bytes = Buffer.from(await whole.arrayBuffer())
    const part = await ask({ range: 'bytes=100-299' })
    expect([part.status, part.headers.get('content-range')]).toEqual([206, `bytes 100-299/${bytes.length}`])
    expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(100, 300))
    const etag = whole.headers.get('etag') ?? ''
    const statuses = await Promise.all([
      ask({ range: `bytes=${bytes.length}-` }),
      ask({ 'if-none-match': etag }),
      ask({ range: 'bytes=0-9', 'if-range': '"another"' }, 'HEAD'),
      ask({}, 'POST'),
      fetch(`${url}..%2f..%2fetc/passwd`),
      fetch(`${url}%`),
    ])
    expect(statuses.map(({ status }) => status)).toEqual([416, 304, 200, 405, 404, 404])
    expect(readdirSync(temporary)).toHaveLength(1)
    child.kill('SIGTERM')
    expect(await ended).toBe(0)
    expect(readdirSync(temporary)).toEqual([])
  })

  test('is told what to do without a folder', async () => {
    expect(await moeflux(['web'])).toMatchObject({ code: 2, stderr: expect.stringContaining('--preview') })
  })
})
