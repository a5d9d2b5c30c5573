// Starts the text worker as a thread of this process. The longest string that V8 makes must fit into its heap.
import { startNodeLineWorker } from './nodeQueueWorker.js'
import type { TextWorker } from './textWorkers.js'

export function startNodeTextWorker(): TextWorker {
  return startNodeLineWorker(new URL('./nodeTextWorker.thread.js', import.meta.url), { heapMegabytes: 1536 })
}
