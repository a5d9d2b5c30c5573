// A compute worker of the wasm backend in a tab.
import { type ComputeSetup, runComputeLoop } from '../compute/wasm/computeLoop.js'

addEventListener('message', async ({ data }: MessageEvent<ComputeSetup>) => {
  await runComputeLoop(data, report => postMessage(report))
  postMessage({ kind: 'ended' })
})
