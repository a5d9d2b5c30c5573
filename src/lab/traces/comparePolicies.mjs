#!/usr/bin/env node
// Eviction policies side by side, replayed from traces: hit rates in decode of each, the optimum above them, and in how many
// traces the engine's policy is better than its predecessor. Traces of one model are averaged; dice are thrown for others.
//
//   node src/lab/traces/recordTraces.mjs traces && node src/lab/traces/comparePolicies.mjs traces/*.trace
import { readFileSync } from 'node:fs'
import { optimalHits } from '../../../dist/lab/traces/optimalHits.js'
import { decodeTrace, joinTraces, unionOf } from '../../../dist/lab/traces/routingTrace.js'
import { diceTrace } from './diceTrace.mjs'
import { lfu, lrfu, perLayer, windowLfu } from './frequency.mjs'
import { arc, lirs, lru, tinyLfu, twoQueues } from './recency.mjs'

const shares = [0.1, 0.25, 0.5, 0.75]
const oneClock = { shortHalfLife: 12, longHalfLife: 12, shortShare: 0, meanShare: 0 }
const policies = {
  lru,
  'lru, per layer': perLayer(lru),
  arc,
  'arc, per layer': perLayer(arc),
  '2q, per layer': perLayer(twoQueues),
  'lirs, per layer': perLayer(lirs),
  tinylfu: tinyLfu,
  'tinylfu, per layer': perLayer(tinyLfu),
  lfu,
  'lfu of 16 steps': windowLfu(16),
  'lfu of 64 steps': windowLfu(64),
  'one clock of 12': lrfu(oneClock),
  'one clock of 12 + mean': lrfu({ ...oneClock, meanShare: 2 }),
  'two clocks': lrfu({ shortHalfLife: 4, longHalfLife: 64, shortShare: 0.3, meanShare: 0 }),
  'lrfu, per layer': perLayer(lrfu()),
  lrfu: lrfu(),
}

/** Share of lookups of one-token steps that hit. A layer asks for all before it brings one, as the engine does. */
function replay(trace, slots, make) {
  const { layers, experts, expertsPerToken } = trace
  const resident = new Set()
  const shape = {
    layers,
    experts,
    slots,
    keys: layers * experts,
    isCached: key => resident.has(key),
    cached: () => resident,
  }
  const policy = make(shape)
  let hits = 0
  let wanted = 0
  for (const step of trace.steps) {
    policy.tick?.()
    for (let layer = 0; layer < layers; layer++) {
      const keys = unionOf(step, layer, expertsPerToken).map(expert => layer * experts + expert)
      let pinned = new Set(keys.filter(key => resident.has(key)))
      const missing = keys.filter(key => !resident.has(key))
      if (step.tokens === 1) {
        hits += pinned.size
        wanted += keys.length
      }
      for (const key of pinned) policy.used(key, false)
      for (const key of missing) {
        if (resident.size >= slots) {
          let victim = policy.victim(layer, other => !pinned.has(other))
          if (victim < 0) {
            pinned = new Set()
            victim = policy.victim(layer, () => true)
          }
          resident.delete(victim)
          policy.removed(victim)
        }
        resident.add(key)
        pinned.add(key)
        policy.inserted(key)
        policy.used(key, true)
      }
    }
  }
  return hits / wanted
}

const recorded = process.argv.slice(2).map(file => decodeTrace(readFileSync(file), file))
const groups = {}
for (const model of new Set(recorded.map(trace => trace.model))) {
  groups[model] = recorded.filter(trace => trace.model === model)
  if (groups[model].length > 2) groups[`${model}, all in a row`] = [joinTraces(groups[model])]
}
groups['dice: zipf 0.9'] = [1, 2].map(seed => diceTrace({ zipf: 0.9, seed }))
groups['dice: topics of 80 tokens'] = [3, 4].map(seed => diceTrace({ zipf: 0.9, topicTokens: 80, seed }))
groups['dice: zipf 0.7, staying'] = [5, 6].map(seed => diceTrace({ zipf: 0.7, stay: 1.5, seed }))

const percent = rate => `${(100 * rate).toFixed(1)}%`
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length
for (const [name, traces] of Object.entries(groups)) {
  const slots = (trace, share) => Math.round(share * trace.layers * trace.experts)
  const rates = shares.map(share =>
    Object.fromEntries(
      Object.entries(policies).map(([policy, make]) => [
        policy,
        traces.map(trace => replay(trace, slots(trace, share), make)),
      ]),
    ),
  )
  const best = shares.map(share =>
    traces.map(trace => {
      const { hits, wanted } = optimalHits(trace, { slots: slots(trace, share), from: 'use', decodeOnly: true })
      return hits / wanted
    }),
  )
  console.log(`\n${name} (${traces.length})\n`)
  console.log(`| experts in memory | ${shares.map(share => `${100 * share}%`).join(' | ')} |`)
  console.log(`|---|${shares.map(() => '---|').join('')}`)
  for (const policy of Object.keys(policies)) {
    console.log(`| ${policy} | ${rates.map(each => percent(mean(each[policy]))).join(' | ')} |`)
  }
  console.log(`| optimum | ${best.map(each => percent(mean(each))).join(' | ')} |`)
  const better = rates.map(each => each.lrfu.filter((rate, i) => rate > each['one clock of 12'][i]).length)
  console.log(`lrfu better than one clock of 12 in ${better.join(', ')} of ${traces.length}`)
}
