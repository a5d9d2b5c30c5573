// `rm`, which asks at a terminal, and `pull --json` for programs.
import { cpSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { expect, test } from 'vitest'
import { startHub } from '../../files/hub/hubServer.js'
import { demoModel } from '../../support/models/models.js'
import { demoSource, temporaryFolder } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'
import { Screen } from './screen.js'

test('rm asks at a terminal, but not in scripts and with --yes', async () => {
  const home = temporaryFolder()
  const place = (name: string) => join(home, 'models', name)
  for (const name of ['one', 'two', 'three']) cpSync(demoModel, place(`acme--${name}`), { recursive: true })
  const env = { ...process.env, MOEFLUX_HOME: home, TERM: 'xterm-256color', NO_COLOR: '' } as Record<string, string>
  const remove = (...args: string[]) =>
    new Screen(spawn(process.execPath, [MAIN, 'rm', ...args], { cols: 80, rows: 30, cwd: place('..'), env }))

  const unsure = remove('acme--one')
  await unsure.shows(/^Remove .* \(2\d\.\d MB\)\? \[y\/N\] $/)
  unsure.type('\r')
  await unsure.shows(/acme--one stays/)
  expect(await unsure.exited()).toBe(0)
  const interrupted = remove('acme--one')
  await interrupted.shows(/\[y\/N\] $/)
  interrupted.type('\u0003')
  expect(await interrupted.exited()).toBe(130)
  expect(existsSync(place('acme--one'))).toBe(true)
  const sure = remove('acme--one')
  await sure.shows(/\[y\/N\] $/)
  sure.type('y\r')
  await sure.shows(/removed acme--one/)
  expect(await sure.exited()).toBe(0)
  const told = remove('--yes', 'acme--two')
  expect(await told.shows(/removed acme--two/)).not.toContain('[y/N]')
  expect(await told.exited()).toBe(0)
  const unknown = remove('acme--four')
  await unknown.shows(/error: acme--four: the store has no such model/)
  expect(await unknown.exited()).toBe(1)
  expect((await moeflux(['rm', 'acme--three'], { env: { MOEFLUX_HOME: home } })).code).toBe(0)
  expect(readdirSync(place('.'))).toEqual([])
})

test('pull --json prints progress and the result as lines of JSON', async () => {
  const home = temporaryFolder()
  const files = readdirSync(demoSource).map(name => [name, readFileSync(join(demoSource, name))] as const)
  const hub = await startHub('acme/tiny', new Map(files))
  try {
    const env = { MOEFLUX_HOME: home, HF_ENDPOINT: hub.url, HF_TOKEN: '' }
    const { code, stdout, stderr } = await moeflux(['pull', 'acme/tiny', '--json', '-q'], { env })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
    const { done, model, folder, bytes } = lines.pop()
    expect({ done, model, folder }).toEqual({ done: true, model: 'acme/tiny', folder: join(home, 'models/acme--tiny') })
    expect(bytes).toBeGreaterThan(1e6)
    expect(lines.length).toBeGreaterThan(1)
    for (const { phase, loaded, total } of lines) {
      expect(phase).toMatch(/\w/)
      expect(loaded).toBeLessThanOrEqual(total)
    }
    expect(lines.some(({ loaded, total }) => loaded === total)).toBe(true)
  } finally {
    await hub.close()
  }
})
