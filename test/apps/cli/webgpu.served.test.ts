// What the command says about adapters: a software one is used when it is asked for, with a warning, and never chosen;
// none at all is one clear error.
import { describe, expect, test } from 'vitest'
import { swiftShaderEnvironment, WAIT_GENTLY } from '../../support/gpu/swiftShaderFiles.js'
import { moeflux } from './moeflux.js'

const own = { MOEFLUX_HOME: '/nonexistent', NO_COLOR: '1', NODE_OPTIONS: WAIT_GENTLY }
const software = { ...swiftShaderEnvironment(), ...own }
const evaluate = ['eval', '--tokens', '1543,46,7', '--json']

describe('adapters', { timeout: 120_000 }, () => {
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

  // A driver list that is empty: only Vulkan can be told so.
  test.skipIf(process.platform !== 'linux')('no adapter is one clear error', async () => {
    const env = { ...software, VK_ICD_FILENAMES: '/nonexistent/driver.json' }
    const { code, stdout, stderr } = await moeflux([...evaluate, '--backend', 'webgpu'], { env })
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(/^error: backend webgpu: no GPU adapter \(.*\)\n$/m)
    const other = await moeflux([...evaluate], { env })
    expect(JSON.parse(other.stdout)).toMatchObject({ backend: 'wasm' })
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
