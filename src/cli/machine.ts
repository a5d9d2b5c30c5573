// What this machine has, as far as estimates need it.
import { availableParallelism, cpus, totalmem } from 'node:os'

export interface Machine {
  readonly threads: number
  readonly processor: string
  readonly totalMemory: number
  readonly availableMemory: number // what a new process may take, limits of containers included
}

export function thisMachine(): Machine {
  return {
    threads: availableParallelism(),
    processor: cpus()[0]?.model.trim() ?? 'unknown processor',
    totalMemory: Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY),
    availableMemory: process.availableMemory(),
  }
}
