// A compute worker in Node.
import { parentPort, workerData } from 'node:worker_threads'
import { type AnySetup, runComputeLoop } from './computeLoop.js'

await runComputeLoop(workerData as AnySetup, report => parentPort?.postMessage(report))
