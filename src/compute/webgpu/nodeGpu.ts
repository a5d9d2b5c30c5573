// WebGPU in Node: Dawn, from the optional npm package `webgpu`. Only Node reaches this file. The object that `create()`
// returns must stay referenced while anything made from it lives, and keeps the process alive: its holder lets go of it.

// Dawn fills workgroup memory with zeros before every workgroup; our kernels write what they read, and compile and run
// much faster without (SwiftShader compiles a tiled product in 0.3 s instead of 6).
const DAWN_OPTIONS = ['enable-dawn-features=disable_workgroup_init']

/** Dawn's entry point, or null with the reason where the package is missing or does not load here. */
export async function createNodeGpu(): Promise<{ gpu: GPU } | { reason: string }> {
  const name = 'webgpu' // a variable, so that bundlers for browsers do not look for it
  try {
    const dawn = (await import(/* @vite-ignore */ name)) as { create(options: string[]): GPU }
    return { gpu: dawn.create(DAWN_OPTIONS) }
  } catch (error) {
    return { reason: `the optional package 'webgpu' (Dawn) does not load: ${(error as Error).message}` }
  }
}
