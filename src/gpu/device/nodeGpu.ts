import { messageOf } from '../../base/errors.js'

// WebGPU in Node: Dawn, from the optional npm package `webgpu`. Only Node reaches this file. The object that `create()`
// returns must stay referenced while anything made from it lives, and keeps the process alive: its holder lets go of it.

// Dawn fills workgroup memory with zeros before every workgroup; our kernels write what they read, and compile and run
// much faster without (SwiftShader compiles a tiled product in 0.3 s instead of 6).
const TOGGLES = ['disable_workgroup_init']

// Dawn also puts a check before every access of a shader, and a case for zero before every division. Ours stay inside their
// buffers by themselves, which tests with poisoned neighbours show (test/support/gpu/guardedGpu.ts), and divide by no zero.
const UNCHECKED = ['disable_robustness', 'disable_polyfills_on_integer_div_and_mod']

// Matrix units are behind these: an experimental feature, and half floats where Dawn does not trust a driver with them.
const TENSORS = ['allow_unsafe_apis', 'vulkan_enable_f16_on_nvidia', 'use_vulkan_memory_model']

/** Where Linux keeps its libraries; Dawn complains on stderr by itself where it finds no Vulkan loader there. */
const LIBRARY_FOLDERS = ['/usr/lib64', '/usr/lib', '/usr/local/lib', '/lib64', '/lib', '/run/opengl-driver/lib']

/** Null: none is found. Empty: there is one somewhere, or none is needed. */
export async function vulkanLoader(): Promise<string | null> {
  // Whoever names a driver has a loader too, be it one that was loaded by hand.
  const { VK_ICD_FILENAMES, VK_DRIVER_FILES } = process.env
  if (process.platform !== 'linux' || VK_ICD_FILENAMES !== undefined || VK_DRIVER_FILES !== undefined) return ''
  const machine = process.arch === 'arm64' ? 'aarch64' : 'x86_64'
  const folders = [
    ...(process.env.LD_LIBRARY_PATH ?? '').split(':').filter(folder => folder !== ''),
    ...LIBRARY_FOLDERS.flatMap(folder => [folder, `${folder}/${machine}-linux-gnu`]),
  ]
  const { existsSync } = await import('node:fs')
  return folders.map(folder => `${folder}/libvulkan.so.1`).find(existsSync) ?? null
}

export interface NodeGpu {
  readonly gpu: GPU
  /** Stops the thread: Dawn asks the GPU in every turn of the event loop while something is waited for (readbackTimer.ts). */
  readonly sleep: (ms: number) => void
}

const word = new Int32Array(new SharedArrayBuffer(4))

function sleep(ms: number): void {
  Atomics.wait(word, 0, 0, ms)
}

/** Dawn's entry point, or the reason where the package is missing or does not load here. */
export async function createNodeGpu(isChecked: boolean): Promise<NodeGpu | { reason: string }> {
  if ((await vulkanLoader()) === null) return { reason: 'there is no Vulkan loader (libvulkan.so.1)' }
  const name = 'webgpu' // a variable, so that bundlers for browsers do not look for it
  try {
    const dawn = (await import(/* @vite-ignore */ name)) as { create(options: string[]): GPU }
    const toggles = isChecked ? TOGGLES : [...TOGGLES, ...UNCHECKED, ...TENSORS]
    return { gpu: dawn.create([`enable-dawn-features=${toggles.join(',')}`]), sleep }
  } catch (error) {
    return { reason: `the optional package 'webgpu' (Dawn) does not load: ${messageOf(error)}` }
  }
}
