// Compiles the kernels in Node: reads the build that this Node can run from dist/. Browsers fetch `kernelUrl` instead.
import { readFile } from 'node:fs/promises'
import { setFlagsFromString } from 'node:v8'
import { hasRelaxedSimd, type KernelModule, kernelUrl, type SimdLevel } from './kernels.js'

/** The relaxed SIMD build where it runs, else (or when asked for) the baseline one. */
export async function loadKernels(wanted?: SimdLevel): Promise<KernelModule> {
  const simd = wanted ?? (enableRelaxedSimd() ? 'relaxed' : 'baseline')
  if (simd === 'relaxed') enableRelaxedSimd()
  return { module: await WebAssembly.compile(await readFile(kernelUrl(simd))), simd }
}

/** Node 20 has relaxed SIMD behind a flag, which holds for the whole process and all its threads. */
function enableRelaxedSimd(): boolean {
  if (!hasRelaxedSimd()) setFlagsFromString('--experimental-wasm-relaxed-simd')
  return hasRelaxedSimd()
}
