// Places for the wasm backend other than Node's own: readers that live on an event loop, as in any page, and where nothing is
// shared, as in one that is not cross-origin isolated. Both take experts from byte sources of any kind.
import { readFile } from 'node:fs/promises'
import { unsharedKernels } from '#moeflux/apps/browser/browserPlatform.js'
import { kernelUrl } from '#moeflux/backends/wasm/kernels.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import type { WasmHost } from '#moeflux/backends/wasm/platform.js'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'

export const asyncHost: WasmHost = {
  ...nodeHost(),
  startReaders: request => startAsyncReaders({ ...request, shared: true }),
}

export const localHost: WasmHost = {
  ...nodeHost(),
  shared: false,
  async loadKernels() {
    const bytes = await readFile(kernelUrl('baseline'))
    return { module: await WebAssembly.compile(unsharedKernels(bytes)), simd: 'baseline' }
  },
  startReaders: request => startAsyncReaders({ ...request, shared: false }),
  startThread: () => {
    throw new Error('no threads here')
  },
}
