// Policies that count: uses of all time, of the last steps, and faded ones as the engine's. The one with the fewest goes; among
// equals, and in the engine's own way of weighing, the one whose layer's turn is farthest away. Same interface as recency.mjs.
import { createPolicy, UseRates } from '../../../dist/experts/evictionPolicy.js'

/** Steps until the next use, were it used as often as it was. */
const wait = (rate, ahead, layers) => 1 / Math.min(1, Math.max(rate, 1e-12)) - 1 + ahead / layers

function longestWait({ experts, layers, cached }, layer, mayGo, rateOf) {
  let best = -1
  let longest = -1
  for (const key of cached()) {
    if (!mayGo(key)) continue
    const ahead = ((Math.floor(key / experts) - layer + layers - 1) % layers) + 1
    const each = wait(rateOf(key), ahead, layers)
    if (each <= longest) continue
    best = key
    longest = each
  }
  return best
}

/** Uses since the beginning. */
export const lfu = shape => {
  const counts = new Float64Array(shape.keys)
  let steps = 0
  return {
    tick: () => steps++,
    inserted() {},
    used: key => counts[key]++,
    removed() {},
    victim: (layer, mayGo) => longestWait(shape, layer, mayGo, key => counts[key] / steps),
  }
}

/** Uses in the last steps. */
export const windowLfu = windowSteps => shape => {
  const counts = new Float64Array(shape.keys)
  const uses = []
  let step = 0
  return {
    tick() {
      step++
      while (uses.length > 0 && uses[0].step <= step - windowSteps) counts[uses.shift().key]--
    },
    inserted() {},
    used(key) {
      counts[key]++
      uses.push({ step, key })
    },
    removed() {},
    victim: (layer, mayGo) => longestWait(shape, layer, mayGo, key => counts[key] / windowSteps),
  }
}

/** The engine's policy with any tuning. */
export const lrfu =
  tuning =>
  ({ layers, experts, slots, mostSlots = slots, keys }) => {
    const rates = new UseRates(keys, tuning)
    const policy = createPolicy('lrfu', { layers, experts, slots: mostSlots }, rates)
    const slotOf = new Map()
    const keyOf = new Int32Array(mostSlots).fill(-1)
    return {
      tick: () => rates.tick(),
      inserted(key) {
        const slot = keyOf.indexOf(-1)
        slotOf.set(key, slot)
        keyOf[slot] = key
        policy.inserted(slot, Math.floor(key / experts), key % experts)
      },
      used: key => policy.used(slotOf.get(key)),
      removed(key) {
        policy.removed(slotOf.get(key))
        keyOf[slotOf.get(key)] = -1
        slotOf.delete(key)
      },
      victim(layer, mayGo) {
        const slot = policy.victim(layer, slot => mayGo(keyOf[slot]))
        return slot < 0 ? -1 : keyOf[slot]
      },
    }
  }

/** Each layer a cache of its own, of an equal share. */
export const perLayer = make => shape => {
  const { layers, experts, slots, cached } = shape
  const share = layer => Math.floor(((layer + 1) * slots) / layers) - Math.floor((layer * slots) / layers)
  const layerOf = key => Math.floor(key / experts)
  const held = new Int32Array(layers)
  const parts = Array.from({ length: layers }, (_, layer) =>
    make({
      ...shape,
      slots: Math.max(1, share(layer)),
      mostSlots: slots, // for a layer that wants more than its share at once
      *cached() {
        for (const key of cached()) if (layerOf(key) === layer) yield key
      },
    }),
  )
  return {
    tick() {
      for (const part of parts) part.tick?.()
    },
    inserted(key) {
      held[layerOf(key)]++
      parts[layerOf(key)].inserted(key)
    },
    used: (key, isFirst) => parts[layerOf(key)].used(key, isFirst),
    removed(key) {
      held[layerOf(key)]--
      parts[layerOf(key)].removed(key)
    },
    victim(layer, mayGo) {
      const over = index => held[index] - share(index)
      let from = layer
      if (over(layer) < 0) for (let index = 0; index < layers; index++) if (over(index) > over(from)) from = index
      for (let i = 0; i < layers; i++) {
        const victim = parts[(from + layers - i) % layers].victim(layer, mayGo)
        if (victim >= 0) return victim
      }
      return -1
    },
  }
}
