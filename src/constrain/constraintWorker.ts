// The grammar worker as a thread of Node: see grammarService.ts.
import { parentPort, workerData } from 'node:worker_threads'
import type { ConstraintRequest, ConstraintWorkerData } from './grammarMessages.js'
import { GrammarService } from './grammarService.js'
import { loadXgrammar } from './loadXgrammar.js'

const service = new GrammarService(loadXgrammar, workerData as ConstraintWorkerData, (reply, transfer) => {
  parentPort?.postMessage(reply, transfer)
})
parentPort?.on('message', (message: ConstraintRequest & { id: number }) => service.hear(message))
