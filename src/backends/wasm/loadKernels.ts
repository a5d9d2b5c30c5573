// Compiles the kernels in Node: reads the build that this Node can run from dist/. Browsers fetch `kernelUrl` instead.
import { readFile } from 'node:fs/promises'
import { setFlagsFromString } from 'node:v8'
import { bestSimd, hasRelaxedSimd, type KernelModule, kernelUrl, type SimdLevel } from './kernels.js'

/** The fastest build that runs here, or the one that is asked for. */
export async function loadKernels(wanted?: SimdLevel): Promise<KernelModule> {
  if (wanted !== 'baseline') enableRelaxedSimd()
  const simd = wanted ?? bestSimd()
  return { module: await WebAssembly.compile(await readFile(kernelUrl(simd))), simd }
}

/** Node 20 has relaxed SIMD behind a flag, which holds for the whole process and all its threads. */
function enableRelaxedSimd(): void {
  if (!hasRelaxedSimd()) setFlagsFromString('--experimental-wasm-relaxed-simd')
}
