// What a model counts while it runs: for `model.stats()`, the server's metrics and the engine view. Counters only ever
// grow while a model is open; rates are the reader's business.

export interface ModelStats {
  readonly tokens: number // evaluated, prompt and decode
  readonly promptTokens: number
  readonly decodeTokens: number
  readonly steps: number
  readonly expertHits: number // wanted by the router and in a slot already, on a GPU or in memory
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
  readonly tiers: TierStats | null // where experts are in one kind of memory: null
}

/** Of a model without experts. */
export const NO_EXPERT_STATS = {
  expertHits: 0,
  expertMisses: 0,
  prefetchHits: 0,
  prefetchReads: 0,
  prefetchWastedBytes: 0,
  bytesRead: 0,
  readSeconds: 0,
  readBusySeconds: 0,
  readLatencyMs: [] as readonly number[],
  stallSeconds: 0,
  expertSlots: 0,
  expertSlotsUsed: 0,
  expertMemory: 0,
}

/** Experts on a GPU that does not hold all of them, and in memory beside it. A hit is an expert that a layer wanted, once per layer and step. */
export interface TierStats {
  readonly gpu: TierUse
  readonly memory: TierUse
  readonly disk: { readonly hits: number } // read before they were computed
  readonly computedOnGpu: number // of all hits
  readonly computedOnCpu: number
  readonly promotions: number // experts that went up because they are used often
  readonly uploads: number // because many tokens of a prompt wanted them
  readonly refills: number // reads of experts that had left the GPU
}

export interface TierUse {
  readonly slots: number
  readonly used: number // slots with an expert
  readonly bytes: number // of all slots
  readonly hits: number // experts that were found there
}
