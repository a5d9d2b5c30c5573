// A name means the same model for every command: a folder or file, then the store, then a short name, then the hub. What
// it does not mean is answered with the names that are similar.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { findWellKnown, WELL_KNOWN_MODELS } from '#moeflux/model/wellKnownModels.js'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import { packDemo, startPull, storeDemo } from '../../support/models/storedModels.js'
import { type Finished, moeflux } from './moeflux.js'

const ID = findWellKnown('a3b')?.hub ?? ''
const OTHER = 'unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M'
const NO_HUB = 'http://127.0.0.1:9' // nothing may be asked there

let home: string
let folder: string // that commands run in

beforeEach(() => {
  home = temporaryFolder()
  folder = temporaryFolder()
})

function run(...args: string[]): Promise<Finished> {
  return moeflux(args, { env: { MOEFLUX_HOME: home, HF_ENDPOINT: NO_HUB, HF_TOKEN: '' }, cwd: folder })
}

async function inspected(name: string): Promise<{ name: string; source: string }> {
  const { code, stdout, stderr } = await run('inspect', name, '--json')
  expect(code, stderr).toBe(0)
  return JSON.parse(stdout)
}

describe('short names', () => {
  test('are all known to inspect, without a network', async () => {
    const names = WELL_KNOWN_MODELS.map(({ names: [name], title }) => [name, title])
    for (const [name, title] of names) expect([name, (await inspected(name)).name]).toEqual([name, title])
    const { name } = await inspected(' QWEN3.5:4B ')
    expect(name).toBe('Qwen3.5-4B')
  })

  test('mean the model of the store, which is told by inspect, doctor and pull', async () => {
    const path = storeDemo(home, ID)
    expect(await inspected('a3b')).toMatchObject({ name: ID, source: path })
    const [text, named, usual, pulled] = await Promise.all([
      run('inspect', 'a3b'),
      run('doctor', '--no-disk', '--model', 'a3b'),
      run('doctor', '--no-disk'),
      run('pull', 'Qwen3.6-35B'),
    ])
    expect(text.stdout).not.toContain('downloads it')
    expect(named.stdout).toContain(`next: moeflux run -m a3b "Hello": ${ID} is in the store`)
    expect(usual.stdout).toContain(`${ID} is in the store`)
    expect(pulled).toMatchObject({ code: 0, stderr: expect.stringContaining(`${ID} is in the store: ${path}\n`) })
  })

  test('mean one that somebody else packed, also while the usual one is partly downloaded', async () => {
    const path = storeDemo(home, OTHER)
    startPull(home, ID)
    expect(await inspected('a3b')).toMatchObject({ name: OTHER, source: path })
    // To remove one of both by this name would be a guess.
    const { code, stderr } = await run('rm', 'a3b')
    expect([code, stderr]).toEqual([1, expect.stringContaining('several models have this name')])
    expect((await run('rm', ID)).code).toBe(0)
    expect((await run('rm', 'a3b')).stderr).toMatch(/^removed unsloth--/)
  })

  test('are hidden by a stored model of this very name, and by a folder that holds one', async () => {
    storeDemo(home, ID)
    const own = storeDemo(home, 'a3b')
    expect(await inspected('a3b')).toMatchObject({ name: 'a3b', source: own })
    packDemo(join(folder, 'a3b'), 'here')
    expect(await inspected('a3b')).toMatchObject({ name: 'here', source: join(folder, 'a3b') })
  })

  test('are not hidden by a folder or file that holds no model', async () => {
    mkdirSync(join(folder, 'a3b'))
    writeFileSync(join(folder, 'gpt-oss'), 'notes')
    expect((await inspected('a3b')).name).toBe('Qwen3.6-35B-A3B')
    expect((await inspected('gpt-oss')).name).toBe('gpt-oss-20b')
    const { code, stderr } = await run('run', '-m', './a3b', 'Hi')
    expect([code, stderr]).toEqual([1, expect.stringContaining('it is not a model')])
  })

  test('tell their shapes while they are partly downloaded', async () => {
    startPull(home, ID)
    expect((await inspected('a3b')).name).toBe('Qwen3.6-35B-A3B')
    const { stderr } = await run('run', '-m', 'a3b', 'Hi')
    expect(stderr).toBe(`error: a3b: its download is not finished: 'moeflux pull ${ID}' or --yes resumes it\n`)
  })
})

describe('names that mean nothing', () => {
  const near: [args: string[], want: string][] = [
    [['inspect', 'qwen3.6'], 'did you mean qwen3.6-35b?'],
    [['run', '-m', 'gpt oss 20', 'Hi'], 'did you mean gpt-oss-20b?'],
    [['chat', '-m', 'GLM45AIR'], 'did you mean glm-4.5-air?'],
    [['pull', 'qwen3.6'], "is not a hub id, want 'owner/name' or a short name; did you mean qwen3.6-35b?"],
    [['verify', 'tiny-mo'], 'did you mean tiny-moe?'],
    [['rm', 'acme/tinymoe'], 'did you mean acme/tiny-moe?'],
    [['serve', '--model', 'dem'], 'did you mean demo?'],
    [['inspect', 'llama'], "('moeflux list' shows those you have, 'moeflux search' finds others)"],
    [['inspect', './qwen3.6'], "('moeflux list' shows those you have, 'moeflux search' finds others)"],
  ]

  test.each(near)('%j', async (args, want) => {
    storeDemo(home, 'acme/tiny-moe')
    const { code, stdout, stderr } = await run(...args)
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toContain(want)
    expect(stderr).toMatch(/^error: [^\n]*\n$/)
  })
})
