// A compute worker in Node.
import { parentPort, workerData } from 'node:worker_threads'
import { type ComputeSetup, runComputeLoop } from './computeLoop.js'

await runComputeLoop(workerData as ComputeSetup, report => parentPort?.postMessage(report))
