// Starts the grammar worker as a thread of this process.
import { Worker } from 'node:worker_threads'
import type { GrammarWorker } from './constraint.js'
import type { ConstraintWorkerData } from './grammarMessages.js'

const WORKER_MEMORY_MB = 512

export function startNodeGrammarWorker(workerData: ConstraintWorkerData): GrammarWorker {
  const worker = new Worker(new URL('./constraintWorker.js', import.meta.url), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: WORKER_MEMORY_MB },
  })
  return {
    post: message => worker.postMessage(message),
    listen(reply, ended) {
      worker.on('message', reply)
      worker.on('error', error => ended(error.message))
      worker.on('exit', () => ended('the grammar worker ended'))
    },
    // The process lives while an answer is awaited, and no longer.
    setBusy: busy => (busy ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
  }
}
