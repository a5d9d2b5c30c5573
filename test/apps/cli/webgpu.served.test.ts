// What the command says about adapters: a software one is used when it is asked for, with a warning, and never chosen;
// none at all is one clear error. What drivers write to stderr does not reach the terminal.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { swiftShaderEnvironment, WAIT_GENTLY } from '../../support/gpu/swiftShaderFiles.js'
import { MAIN, moeflux } from './moeflux.js'
import { plain } from './screen.js'

const evaluate = ['eval', '--tokens', '1543,46,7', '--json']
const RUN = ['run', '--threads', '1', '-n', '2', 'Hi']

describe('adapters', { timeout: 120_000 }, () => {
  let home: string
  let software: Record<string, string>
  /** Dawn complains: the driver that is named does not exist. Only Vulkan can be told so. */
  let noDriver: Record<string, string>

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'moeflux-gpu-'))
    const own = { MOEFLUX_HOME: home, NO_COLOR: '1', NODE_OPTIONS: WAIT_GENTLY }
    software = { ...swiftShaderEnvironment(), ...own }
    noDriver = { ...software, VK_ICD_FILENAMES: '/nonexistent/driver.json' }
  })

  afterEach(() => rmSync(home, { recursive: true, force: true }))

  const kept = () => JSON.parse(readFileSync(join(home, 'adapter.json'), 'utf8'))

  /** What a person at a terminal sees. */
  function seen(args: readonly string[], env: Record<string, string>): Promise<string> {
    const all = { ...process.env, ...env } as Record<string, string>
    const terminal = spawn(process.execPath, [MAIN, ...args], { cols: 200, rows: 30, env: all })
    let text = ''
    terminal.onData(part => (text += part))
    return new Promise(resolve => terminal.onExit(() => resolve(plain(text))))
  }

  test('--backend webgpu takes a software adapter and says so', async () => {
    const { code, stdout, stderr } = await moeflux([...evaluate, '--backend', 'webgpu'], { env: software })
    expect(code, stderr).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ backend: 'webgpu' })
    expect(stderr).toMatch(/^webgpu runs on a software adapter \(swiftshader.*\), which is slow\n$/)
  })

  test('auto leaves a software adapter alone, without a word', async () => {
    const { code, stdout, stderr } = await moeflux([...evaluate, '--backend', 'auto'], { env: software })
    expect(code, stderr).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({ backend: 'wasm' })
    expect(stderr).toBe('')
  })

  test.skipIf(process.platform !== 'linux')('no adapter is one clear error', async () => {
    const asked = await moeflux([...evaluate, '--backend', 'webgpu'], { env: noDriver })
    expect(asked).toMatchObject({ code: 1, stdout: '' })
    expect(asked.stderr).toMatch(/^error: backend webgpu: no GPU adapter \([^\n]*\)\n$/)
    const other = await moeflux([...evaluate], { env: noDriver })
    expect(JSON.parse(other.stdout)).toMatchObject({ backend: 'wasm' })
    expect(other.stderr).toBe('')
  })

  test.skipIf(process.platform !== 'linux')('a terminal is told once that no GPU is used, and why', async () => {
    const scripted = await moeflux(RUN, { env: noDriver })
    expect(scripted.stderr).not.toMatch(/GPU|Warning/)
    const [first, second] = [await seen(RUN, noDriver), await seen(RUN, noDriver)]
    expect(first).toMatch(/^computing without a GPU: no GPU adapter \(.*; 'moeflux doctor' says more\n/)
    expect(first + second).not.toContain('Warning')
    expect(second).not.toContain('GPU')
  })

  test.skipIf(process.platform !== 'linux')('the answer is kept until drivers change or doctor asks', async () => {
    await moeflux(RUN, { env: noDriver })
    const { key, usable } = kept()
    expect(usable).toBe(false)
    writeFileSync(join(home, 'adapter.json'), JSON.stringify({ ...kept(), reason: 'planted' }))
    expect(await seen(RUN, noDriver)).toContain('computing without a GPU: planted;')
    expect(await seen(RUN, { ...noDriver, VK_ICD_FILENAMES: '/nonexistent/other.json' })).toContain('no GPU adapter')
    expect(kept().key).not.toBe(key)
    writeFileSync(join(home, 'adapter.json'), '{"key":')
    expect((await moeflux(RUN, { env: noDriver })).code).toBe(0)
    writeFileSync(join(home, 'adapter.json'), JSON.stringify({ ...kept(), reason: 'planted' }))
    const doctor = await moeflux(['doctor', '--no-disk'], { env: noDriver })
    expect(doctor).toMatchObject({ code: 0, stderr: '' })
    expect(doctor.stdout).toMatch(/gpu: drivers say .*Vulkan|gpu: drivers say .*driver/i)
    expect(doctor.stdout).toContain('install')
    expect(kept().reason).toContain('no GPU adapter')
  })

  test('a store that cannot be written changes nothing', async () => {
    const file = join(home, 'file')
    writeFileSync(file, '')
    const { code, stderr } = await moeflux([...RUN, '-q'], { env: { ...software, MOEFLUX_HOME: join(file, 'store') } })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(existsSync(join(file, 'store'))).toBe(false)
  })

  test('doctor names the adapter, its features and limits, and what auto would choose', async () => {
    const { code, stdout } = await moeflux(['doctor', '--no-disk', '--json'], { env: software })
    expect(code).toBe(0)
    const text = JSON.stringify(JSON.parse(stdout))
    expect(text).toMatch(/swiftshader/i)
    expect(text).toMatch(/subgroups/)
    expect(text).toMatch(/maxStorageBufferBindingSize/)
    expect(text).toMatch(/is a software adapter/)
  })
})
