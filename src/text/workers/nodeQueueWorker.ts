// A thread of this process as the worker of a line, with a heap of its own that it may fill without harm. The limit should
// be far above need: V8 ends a thread that fills its heap bit by bit, but the whole process when one allocation does
// not fit.
import { Worker } from 'node:worker_threads'
import type { LineWorker } from './workerQueue.js'

export interface ThreadOptions {
  readonly heapMegabytes: number
  readonly workerData?: unknown
}

export function startNodeLineWorker<Request, Reply>(
  file: URL,
  { heapMegabytes, workerData }: ThreadOptions,
): LineWorker<Request, Reply> {
  const worker = new Worker(file, {
    resourceLimits: { maxOldGenerationSizeMb: heapMegabytes, maxYoungGenerationSizeMb: 32 },
    execArgv: [],
    stdin: false,
    workerData,
  })
  let onReply: (reply: 'ready' | Reply) => void = () => undefined
  let onEnd: (reason: string) => void = () => undefined
  let reason = 'the worker ended'
  worker.on('message', (reply: 'ready' | Reply) => onReply(reply))
  worker.on('error', (error: Error & { code?: string }) => {
    reason = error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? `needed more than ${heapMegabytes} MiB` : error.message
  })
  worker.on('exit', () => onEnd(reason))
  return {
    post: request => worker.postMessage(request),
    listen(reply, ended) {
      onReply = reply
      onEnd = ended
    },
    setBusy: busy => (busy ? worker.ref() : worker.unref()),
    terminate: () => void worker.terminate(),
  }
}
