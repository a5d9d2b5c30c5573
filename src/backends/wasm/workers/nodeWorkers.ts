// Compute workers as threads of Node, and how many of them suit the machine.
import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import type { ComputeThread, ThreadEvents } from '../platform.js'
import type { AnySetup } from './computeLoop.js'

export function startComputeThread(setup: AnySetup, events: ThreadEvents): ComputeThread {
  const worker = new Worker(new URL('./nodeComputeWorker.thread.js', import.meta.url), {
    workerData: setup,
    name: `moeflux compute ${setup.index}`,
    resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 },
  })
  let failure: Error | null = null
  const ended = new Promise<void>(resolve => {
    worker.once('exit', () => {
      events.ended(failure)
      resolve()
    })
  })
  worker.on('message', events.report)
  worker.on('error', error => {
    failure = error instanceof Error ? error : new Error(String(error))
  })
  return {
    setRef: on => (on ? worker.ref() : worker.unref()),
    async terminate() {
      await worker.terminate()
      await ended
    },
  }
}

/** Physical cores that this process may use: two threads on one core get in each other's way here. */
export function physicalCores(): number {
  const logical = availableParallelism()
  if (process.platform !== 'linux') return logical
  try {
    const root = '/sys/devices/system/cpu'
    const cpus = readdirSync(root).filter(name => /^cpu\d+$/.test(name))
    const cores = new Set(cpus.map(cpu => readFileSync(`${root}/${cpu}/topology/thread_siblings_list`, 'utf8')))
    return Math.max(1, Math.min(logical, cores.size))
  } catch {
    return logical
  }
}
