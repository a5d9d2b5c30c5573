// How long the main thread of a process has stood in line for a processor so far, in milliseconds: ready to run, and not
// running. Null where the system does not tell.
import { readFileSync } from 'node:fs'

export function processorWaitMs(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6
  } catch {
    return null
  }
}
