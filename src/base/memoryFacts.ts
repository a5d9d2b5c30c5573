// How much memory there is, as a plan sees it. Who finds out is elsewhere: see nodeMemory.ts, and the host of a tab.

export interface MemoryFacts {
  readonly bytes: number // free to take; page cache that can be dropped counts as free
  /** Past so many more bytes the system ends the process. Infinity where nobody can tell. */
  readonly ceiling: number
  readonly limit: number // all there is: of the machine, or of the tightest control group
  readonly limitedBy: 'machine' | 'cgroup'
}
