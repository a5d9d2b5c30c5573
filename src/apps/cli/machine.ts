// What this machine has, as far as estimates need it.
import { availableParallelism, cpus } from 'node:os'
import { availableMemory } from '../../internal.js'

export interface Machine {
  readonly threads: number
  readonly processor: string
  readonly totalMemory: number // of the machine, or of the control group that limits this process
  readonly freeMemory: number
}

export function thisMachine(): Machine {
  const memory = availableMemory()
  return {
    threads: availableParallelism(),
    processor: cpus()[0]?.model.trim() ?? 'unknown processor',
    totalMemory: memory.limit,
    freeMemory: memory.bytes,
  }
}
