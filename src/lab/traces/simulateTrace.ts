// Replays a recorded trace against a cache of some size and policy, without a model: the streamer itself, over a disk that
// answers at once. So hits and misses are counted by the code that counts them in the engine, in the same order.
import type { PolicyName } from '../../experts/evictionPolicy.js'
import { ExpertStreamer, type ReadQueue } from '../../experts/expertStreamer.js'
import { readState } from '../../experts/readers/readRing.js'
import { type RoutingTrace, unionOf } from './routingTrace.js'

export interface SimulationResult {
  readonly policy: PolicyName
  readonly slots: number
  readonly hitRate: number // over all steps
  readonly hits: number
  readonly misses: number
  readonly decodeTokens: number // of steps with one token
  readonly decodeHitRate: number
  readonly decodeMissesPerToken: number
}

export function simulateTrace(trace: RoutingTrace, policy: PolicyName, slots: number): SimulationResult {
  const streamer = new ExpertStreamer(
    {
      layers: trace.layers,
      experts: trace.experts,
      expertsPerToken: trace.expertsPerToken,
      expertSize: trace.expertBytes,
      slotBank: new Int32Array(slots),
      slotOffset: new Float64Array(slots),
      policy,
      prefetch: false,
      fileNames: [],
    },
    new InstantDisk(slots),
    new Int32Array(1),
  )
  const batch = new Int32Array(Math.max(1, trace.experts))
  let decodeTokens = 0
  let decodeHits = 0
  let decodeMisses = 0
  for (const step of trace.steps) {
    const before = streamer.stats
    streamer.beginStep()
    for (let layer = 0; layer < trace.layers; layer++) {
      streamer.request(layer, unionOf(step, layer, trace.expertsPerToken))
      while (streamer.next(batch) > 0);
      streamer.release()
    }
    if (step.tokens > 1) continue
    decodeTokens++
    decodeHits += streamer.stats.expertHits - before.expertHits
    decodeMisses += streamer.stats.expertMisses - before.expertMisses
  }
  const { expertHits: hits, expertMisses: misses } = streamer.stats
  return {
    policy,
    slots,
    hits,
    misses,
    hitRate: hits / (hits + misses),
    decodeTokens,
    decodeHitRate: decodeHits / (decodeHits + decodeMisses),
    decodeMissesPerToken: decodeMisses / decodeTokens,
  }
}

class InstantDisk implements ReadQueue {
  readonly answers = 0
  readonly lostReaders = 0
  private readonly states: Uint8Array

  constructor(slots: number) {
    this.states = new Uint8Array(slots)
  }

  submit(entry: number): void {
    this.states[entry] = readState.done
  }

  promote(): void {}

  cancel(): boolean {
    return false
  }

  state(entry: number): number {
    return this.states[entry]
  }

  settle(entry: number): void {
    this.states[entry] = readState.idle
  }

  failure(): { code: string; got: number } {
    return { code: '', got: 0 }
  }

  waitForAnswer(): void {}
}
