// Replays a recorded trace against three tiers of some size, without a model: the engine's own decisions (ExpertTiers), over
// a bus and a disk that answer at once. Where an expert of a prompt is computed follows the number of its tokens.
import type { PolicyName } from '../../experts/evictionPolicy.js'
import type { ExpertName } from '../../experts/expertCache.js'
import {
  ExpertTiers,
  type Place,
  type PromotionRule,
  type TierCounters,
  type TierShape,
} from '../../experts/expertTiers.js'
import { expertsToBring, type PromptRule } from '../../experts/tierSpeed.js'
import { type RoutingTrace, type TraceStep, tokensOfExperts } from './routingTrace.js'

export interface TierSizes {
  readonly gpuSlots: number // in all pools
  readonly memorySlots: number
  readonly pools?: number // of GPU slots; each serves neighbouring layers. Default 1
}

/** And which experts of a prompt's chunk go to the GPU at once, instead of being computed in memory. */
export type TierRules = PromotionRule & PromptRule

/** Of all steps, or of those with one token. */
export interface TierCounts extends TierCounters {
  steps: number
  layersMissed: number // layers of these steps that wanted an expert that was not on the GPU
}

export interface TierSimulation extends TierSizes {
  readonly policy: PolicyName
  readonly all: TierCounts
  readonly decode: TierCounts
}

export function simulateTiers(
  trace: RoutingTrace,
  policy: PolicyName,
  sizes: TierSizes,
  rules: TierRules,
): TierSimulation {
  const tiers = new ExpertTiers(tierShape(trace, policy, sizes), rules)
  const all = noCounts()
  const decode = noCounts()
  for (const step of trace.steps) {
    const before = { ...tiers.counters }
    const layersMissed = replayStep(tiers, trace, step, rules)
    for (const counts of step.tokens === 1 ? [all, decode] : [all]) {
      counts.steps++
      counts.layersMissed += layersMissed
      for (const name of Object.keys(before) as (keyof TierCounters)[]) {
        counts[name] += tiers.counters[name] - before[name]
      }
    }
  }
  return { policy, ...sizes, all, decode }
}

export function tierShape(trace: RoutingTrace, policy: PolicyName, { pools = 1, ...sizes }: TierSizes): TierShape {
  const { layers, experts, expertBytes } = trace
  return {
    layers,
    experts,
    expertBytes,
    poolOfLayer: Array.from({ length: layers }, (_, layer) => Math.floor((layer * pools) / layers)),
    poolSlots: Math.floor(sizes.gpuSlots / pools),
    memorySlots: sizes.memorySlots,
    policy,
  }
}

/** Returns how many layers wanted an expert that was not on the GPU. */
export function replayStep(tiers: ExpertTiers, trace: RoutingTrace, step: TraceStep, rule: PromptRule): number {
  let layersMissed = 0
  tiers.beginStep()
  for (let layer = 0; layer < trace.layers; layer++) {
    const wanted = tokensOfExperts(step, layer, trace.expertsPerToken)
    if (replayLayer(tiers, layer, wanted, step.tokens > 1 ? rule : null)) layersMissed++
  }
  for (let next = tiers.promotion(); next !== null; next = tiers.promotion()) {
    tiers.promoted(next)
    refill(tiers, next.left)
  }
  return layersMissed
}

function refill(tiers: ExpertTiers, left: ExpertName | null): void {
  const slot = left === null ? -1 : tiers.refill(left)
  if (slot >= 0) tiers.memory.filled(slot)
}

/** Asks for all before it reads one, as the engine does. Returns whether some were not on the GPU. */
function replayLayer(
  tiers: ExpertTiers,
  layer: number,
  wanted: ReadonlyMap<number, number>, // expert → tokens
  rule: PromptRule | null, // of a prompt
): boolean {
  const held: Place[] = []
  const release = () => {
    for (const place of held.splice(0)) tiers.release(place)
  }
  const places = [...wanted].map(([expert, tokens]) => ({ expert, tokens, place: tiers.want(layer, expert) }))
  held.push(...places.map(({ place }) => place))
  const missing = new Map(places.filter(({ place }) => place.tier !== 'gpu').map(one => [one.expert, one.tokens]))
  const brought = rule === null ? new Set<number>() : expertsToBring(missing, rule)
  for (const { expert, place } of places) {
    if (place.tier === 'gpu') continue
    if (brought.has(expert) && upload(tiers, layer, expert, held, release)) continue
    if (place.tier === 'memory') continue
    let slot = tiers.claim(layer, expert)
    if (slot < 0) {
      release() // what was there is computed: a layer may want more than there is room for
      slot = tiers.claim(layer, expert)
    }
    tiers.memory.filled(slot)
    held.push({ tier: 'memory', slot })
  }
  release()
  for (let left = tiers.displaced.pop(); left !== undefined; left = tiers.displaced.pop()) refill(tiers, left)
  return places.some(({ place }) => place.tier !== 'gpu')
}

function upload(tiers: ExpertTiers, layer: number, expert: number, held: Place[], release: () => void): boolean {
  if (tiers.gpu.slots === 0) return false
  let slot = tiers.bring(layer, expert)
  if (slot < 0) {
    release()
    slot = tiers.bring(layer, expert)
  }
  if (slot < 0) return false
  tiers.brought(slot)
  held.push({ tier: 'gpu', slot })
  return true
}

function noCounts(): TierCounts {
  return { steps: 0, layersMissed: 0, gpu: 0, memory: 0, disk: 0, promotions: 0, uploads: 0, refills: 0 }
}
