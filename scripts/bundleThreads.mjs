// Node's threads, each one file beside its entry with all of ours that it loads: to find and read seventy modules takes a thread longer
// than to start. Libraries stay where npm installs them.
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { isLibrary } from './libraries.mjs'
import { writeChanged } from './writeChanged.mjs'

const dist = join(dirname(fileURLToPath(import.meta.url)), '../dist')
const entries = [
  'backends/wasm/workers/nodeComputeWorker',
  'text/workers/nodeTextWorker',
  'grammar/workers/nodeGrammarWorker',
]

export async function bundleThreads() {
  for (const entry of entries) {
    const bundle = await rolldown({ input: join(dist, `${entry}.js`), platform: 'node', external: isLibrary })
    const { output } = await bundle.generate({ format: 'es', codeSplitting: false })
    await bundle.close()
    writeChanged(join(dist, `${entry}.thread.js`), output[0].code)
  }
}
