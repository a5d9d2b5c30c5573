// Starts the text worker as a thread of this process, with a heap of its own that it may fill without harm.
// The limit is far above need: V8 ends a thread that fills its heap bit by bit, but the whole process when one
// allocation does not fit, and the longest string that V8 makes must.
import { Worker } from 'node:worker_threads'
import type { TextReply } from './textService.js'
import type { TextWorker } from './textWorkers.js'

const HEAP_MEGABYTES = 1536

export function startNodeTextWorker(): TextWorker {
  const worker = new Worker(new URL('./textWorker.js', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MEGABYTES, maxYoungGenerationSizeMb: 32 },
    execArgv: [],
    stdin: false,
  })
  let onReply: (reply: TextReply | 'ready') => void = () => undefined
  let onEnd: (reason: string) => void = () => undefined
  let reason = 'the worker ended'
  worker.on('message', (reply: TextReply | 'ready') => onReply(reply))
  worker.on('error', (error: Error & { code?: string }) => {
    reason = error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? `needed more than ${HEAP_MEGABYTES} MiB` : error.message
  })
  worker.on('exit', () => onEnd(reason))
  return {
    post: message => worker.postMessage(message),
    listen(reply, ended) {
      onReply = reply
      onEnd = ended
    },
    setBusy: busy => (busy ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
  }
}
