// The engine worker: where its parts are found, and nothing else. The build bundles this file and the other workers, each
// into one file beside it, so that a page needs no bundler; the addresses below hold for both.
import type { VocabularyBytes } from '../../grammar/automaton/tokenTrie.js'
import type { GrammarWorker } from '../../grammar/workers/grammarMessages.js'
import type { TextWorker } from '../../text/workers/textWorkers.js'
import type { LineWorker } from '../../text/workers/workerQueue.js'
import { browserHost } from './browserPlatform.js'
import { EngineService } from './engineService.js'
import type { ToEngine } from './protocol.js'

const wasmHost = browserHost({
  kernels: {
    'dot-product': new URL('../../backends/wasm/kernels.dot-product.wasm', import.meta.url),
    relaxed: new URL('../../backends/wasm/kernels.relaxed.wasm', import.meta.url),
    baseline: new URL('../../backends/wasm/kernels.baseline.wasm', import.meta.url),
  },
  startCompute: () => new Worker(new URL('./compute.worker.js', import.meta.url), { type: 'module' }),
})

function lineWorker<Request, Reply>(worker: Worker, name: string): LineWorker<Request, Reply> {
  return {
    post: message => worker.postMessage(message),
    listen(reply, ended) {
      worker.onmessage = ({ data }: MessageEvent<'ready' | Reply>) => reply(data)
      worker.onerror = event => ended(event.message || `${name} cannot be loaded, from beside ${location.href}`)
    },
    setBusy() {},
    terminate: () => worker.terminate(),
  }
}

function startTextWorker(): TextWorker {
  return lineWorker(new Worker(new URL('./text.worker.js', import.meta.url), { type: 'module' }), 'text.worker.js')
}

function startGrammarWorker(vocabulary: VocabularyBytes | null): GrammarWorker {
  const worker = new Worker(new URL('./grammar.worker.js', import.meta.url), { type: 'module' })
  worker.postMessage(vocabulary)
  return lineWorker(worker, 'grammar.worker.js')
}

const service = new EngineService((message, transfer = []) => postMessage(message, { transfer }), {
  wasmHost,
  startTextWorker,
  startGrammarWorker,
})
addEventListener('message', ({ data }: MessageEvent<ToEngine>) => service.hear(data))
