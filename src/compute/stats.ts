// What a model counts while it runs: for `model.stats()`, the server's metrics and the engine view. Counters only ever
// grow while a model is open; rates are the reader's business.

export interface ModelStats {
  readonly tokens: number // evaluated, prompt and decode
  readonly promptTokens: number
  readonly decodeTokens: number
  readonly steps: number
  readonly expertHits: number // wanted by the router and in a slot already
  readonly expertMisses: number // wanted and read on demand
  readonly prefetchHits: number // hits whose expert a prefetch brought (each read counted once)
  readonly prefetchReads: number
  readonly prefetchWastedBytes: number // prefetched and evicted unused
  readonly bytesRead: number // experts, demand and prefetch
  readonly readSeconds: number // summed over reads, so it may exceed wall time
  readonly readBusySeconds: number // wall time with a read under way
  readonly readLatencyMs: readonly number[] // histogram: bucket i counts reads of < 2^i / 8 ms
  readonly stallSeconds: number // compute waited for a demand read
  readonly computeSeconds: number // wall time of steps less stalls
  readonly phaseSeconds: Readonly<Record<string, number>> // mixer, router, experts, head, …
  readonly residentBytes: number
  readonly expertSlots: number
  readonly expertSlotsUsed: number
  readonly expertMemory: number // bytes
}
