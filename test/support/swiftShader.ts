// A GPU for machines without one: SwiftShader, a software Vulkan driver that travels with @sparticuz/chromium. Importing
// this module makes Dawn find it in this process. The driver is for Linux on x64; elsewhere the machine's own adapter is
// used, and where there is none the tests fail instead of skipping themselves.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import { repository } from './packedFiles.js'
import { createShared } from './sharedGpu.js'
import './waitGently.mjs'

const RTLD_NODELETE = 0x1000

/** For processes that a test starts: the environment in which Dawn finds SwiftShader. */
export function swiftShaderEnvironment(): Record<string, string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') return {}
  const folder = unpack()
  return { VK_ICD_FILENAMES: join(folder, 'vk_swiftshader_icd.json'), LD_LIBRARY_PATH: folder }
}

/** An option of Node, for those of them in which Dawn is to wait as it does here. */
export const WAIT_GENTLY = `--import ${new URL('./waitGently.mjs', import.meta.url).href}`

const { VK_ICD_FILENAMES, LD_LIBRARY_PATH } = swiftShaderEnvironment()
if (VK_ICD_FILENAMES !== undefined) {
  shareDevices()
  process.env.VK_ICD_FILENAMES = VK_ICD_FILENAMES
  // The search path of a running process is fixed, so the Vulkan loader is loaded here by its full path. Node finds that
  // it is no addon and closes it, which RTLD_NODELETE turns into nothing; Dawn then gets the loaded one by its name.
  try {
    process.dlopen({ exports: {} }, join(LD_LIBRARY_PATH, 'libvulkan.so.1'), constants.dlopen.RTLD_NOW | RTLD_NODELETE)
  } catch (error) {
    if (!/did not self-register/.test((error as Error).message)) throw error
  }
}

/** Whoever opens a device gets a share of one. */
function shareDevices(): void {
  const dawn = createRequire(import.meta.url)(join(repository, 'node_modules/webgpu/dist/linux-x64/dawn.node'))
  dawn.create = createShared(dawn.create)
}

function unpack(): string {
  const chromium = join(repository, 'node_modules/@sparticuz/chromium')
  const { version } = JSON.parse(readFileSync(join(chromium, 'package.json'), 'utf8')) as { version: string }
  const cache = join(repository, 'node_modules/.cache')
  const folder = join(cache, `swiftshader-${version}`)
  if (existsSync(folder)) return folder
  mkdirSync(cache, { recursive: true })
  const fresh = mkdtempSync(join(cache, 'swiftshader-'))
  const tar = brotliDecompressSync(readFileSync(join(chromium, 'bin/swiftshader.tar.br')))
  for (let at = 0; at + 512 <= tar.length; ) {
    const name = tar.toString('latin1', at, at + 100).replace(/\0.*$/s, '')
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8) || 0
    if (name !== '') writeFileSync(join(fresh, name), tar.subarray(at + 512, at + 512 + size), { mode: 0o755 })
    at += 512 + Math.ceil(size / 512) * 512
  }
  try {
    renameSync(fresh, folder) // whoever comes first; files never look half-made
  } catch {
    rmSync(fresh, { recursive: true, force: true })
  }
  return folder
}
