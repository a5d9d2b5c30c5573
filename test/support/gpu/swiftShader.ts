// A GPU for machines without one: SwiftShader, a software Vulkan driver that travels with @sparticuz/chromium. Importing
// this module makes Dawn find it in this process. The driver is for Linux on x64; elsewhere the machine's own adapter is
// used, and where there is none the tests fail instead of skipping themselves.
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { join } from 'node:path'
import { repository } from '../models/packedFiles.js'
import { createShared } from './sharedGpu.js'
import { swiftShaderEnvironment } from './swiftShaderFiles.js'
import '../waitGently.mjs'

const RTLD_NODELETE = 0x1000

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
