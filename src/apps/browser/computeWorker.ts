// A compute worker of the wasm backend in a tab. A promise that is rejected here is an error that no page hears of, so the
// end is told as a message, with its reason.
import { type AnySetup, runComputeLoop } from '../../backends/wasm/workers/computeLoop.js'

/** The last message of a compute worker. */
export interface ComputeEnd {
  readonly kind: 'ended'
  readonly error: string | null // what it died of
}

addEventListener('message', async ({ data }: MessageEvent<AnySetup>) => {
  let error: string | null = null
  try {
    await runComputeLoop(data, report => postMessage(report))
  } catch (thrown) {
    error = thrown instanceof Error ? thrown.message : String(thrown)
  }
  postMessage({ kind: 'ended', error } satisfies ComputeEnd)
})
