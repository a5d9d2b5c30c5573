// Caches known from the books, to compare with: recently used, seen twice, ghosts of what was evicted. A policy hears of experts
// by key (layer * experts + expert): `inserted` (into the cache), `used` (every use; `isFirst`: just inserted), `removed`; and
// `victim(layer, mayGo)` names the one to evict.

const firstOf = (order, mayGo) => {
  for (const key of order.keys()) if (mayGo(key)) return key
  return -1
}
const touch = (order, key) => {
  order.delete(key)
  order.set(key, true)
}
const dropOldest = order => order.delete(order.keys().next().value)

export const lru = () => {
  const order = new Map()
  return {
    inserted: key => order.set(key, true),
    used: key => touch(order, key),
    removed: key => order.delete(key),
    victim: (_layer, mayGo) => firstOf(order, mayGo),
  }
}

/** Megiddo and Modha's adaptive replacement cache. */
export const arc = ({ slots }) => {
  const once = new Map()
  const often = new Map()
  const ghostsOfOnce = new Map()
  const ghostsOfOften = new Map()
  let target = 0 // slots for those seen once
  return {
    inserted(key) {
      if (ghostsOfOnce.has(key)) {
        target = Math.min(slots, target + Math.max(1, ghostsOfOften.size / ghostsOfOnce.size))
        ghostsOfOnce.delete(key)
        often.set(key, true)
      } else if (ghostsOfOften.has(key)) {
        target = Math.max(0, target - Math.max(1, ghostsOfOnce.size / ghostsOfOften.size))
        ghostsOfOften.delete(key)
        often.set(key, true)
      } else {
        once.set(key, true)
        while (once.size + ghostsOfOnce.size > slots && ghostsOfOnce.size > 0) dropOldest(ghostsOfOnce)
        const all = () => once.size + often.size + ghostsOfOnce.size + ghostsOfOften.size
        while (all() > 2 * slots && ghostsOfOften.size > 0) dropOldest(ghostsOfOften)
      }
    },
    used(key, isFirst) {
      if (!isFirst && (once.delete(key) || often.delete(key))) often.set(key, true)
    },
    removed(key) {
      if (once.delete(key)) ghostsOfOnce.set(key, true)
      else if (often.delete(key)) ghostsOfOften.set(key, true)
    },
    victim(_layer, mayGo) {
      const order = once.size > target ? [once, often] : [often, once]
      const first = firstOf(order[0], mayGo)
      return first >= 0 ? first : firstOf(order[1], mayGo)
    },
  }
}

/** Johnson and Shasha's 2Q: a queue for newcomers, a list for those who came back. */
export const twoQueues = ({ slots }) => {
  const newcomers = new Map()
  const known = new Map()
  const ghosts = new Map()
  return {
    inserted(key) {
      if (ghosts.delete(key)) known.set(key, true)
      else newcomers.set(key, true)
    },
    used(key, isFirst) {
      if (!isFirst && known.has(key)) touch(known, key)
    },
    removed(key) {
      if (!newcomers.delete(key)) return void known.delete(key)
      ghosts.set(key, true)
      if (ghosts.size > slots / 2) dropOldest(ghosts)
    },
    victim(_layer, mayGo) {
      const order = newcomers.size > slots / 4 ? [newcomers, known] : [known, newcomers]
      const first = firstOf(order[0], mayGo)
      return first >= 0 ? first : firstOf(order[1], mayGo)
    },
  }
}

/** Einziger's W-TinyLFU: a window of newcomers, who stay if they are counted more than the one who would leave. */
export const tinyLfu = ({ slots, keys }) => {
  const window = new Map()
  const probation = new Map()
  const main = new Map()
  const windowSlots = Math.max(1, Math.round(slots / 10))
  const mainSlots = slots - windowSlots
  const counts = new Float64Array(keys)
  let uses = 0
  return {
    inserted(key) {
      window.set(key, true)
      while (window.size > windowSlots && probation.size + main.size < mainSlots) {
        const oldest = window.keys().next().value
        window.delete(oldest)
        probation.set(oldest, true)
      }
    },
    used(key, isFirst) {
      counts[key]++
      if (++uses >= 10 * slots) {
        uses = 0
        for (let i = 0; i < keys; i++) counts[i] /= 2
      }
      if (isFirst) return
      if (window.has(key)) touch(window, key)
      else if (main.has(key)) touch(main, key)
      else if (probation.delete(key)) {
        main.set(key, true)
        while (main.size > 0.8 * mainSlots) {
          const oldest = main.keys().next().value
          main.delete(oldest)
          probation.set(oldest, true)
        }
      }
    },
    removed: key => void (window.delete(key) || probation.delete(key) || main.delete(key)),
    victim(_layer, mayGo) {
      const candidate = firstOf(window, mayGo)
      const onProbation = firstOf(probation, mayGo)
      const other = onProbation >= 0 ? onProbation : firstOf(main, mayGo)
      if (other < 0) return candidate
      if (candidate < 0 || window.size < windowSlots) return other
      if (counts[candidate] <= counts[other]) return candidate
      window.delete(candidate)
      probation.set(candidate, true)
      return other
    },
  }
}

/** Jiang and Zhang's LIRS: the time between the last two uses decides who is safe. */
export const lirs = ({ slots, isCached }) => {
  const stack = new Map() // those that are safe, and newer ones, oldest first
  const queue = new Map() // cached and not safe
  const safe = new Set()
  const mostSafe = slots - Math.max(1, Math.round(slots / 20))
  const prune = () => {
    for (const key of stack.keys()) {
      if (safe.has(key)) return
      stack.delete(key)
    }
  }
  const demote = () => {
    for (const key of stack.keys()) {
      if (!safe.delete(key)) continue
      stack.delete(key)
      if (isCached(key)) queue.set(key, true)
      break
    }
    prune()
  }
  return {
    inserted() {},
    used(key) {
      if (safe.has(key)) {
        touch(stack, key)
        prune()
      } else if (stack.has(key)) {
        touch(stack, key)
        queue.delete(key)
        safe.add(key)
        if (safe.size > mostSafe) demote()
      } else {
        stack.set(key, true)
        queue.delete(key)
        if (safe.size < mostSafe) safe.add(key)
        else queue.set(key, true)
      }
    },
    removed(key) {
      queue.delete(key)
      if (!safe.delete(key)) return
      stack.delete(key)
      prune()
    },
    victim(_layer, mayGo) {
      const first = firstOf(queue, mayGo)
      return first >= 0 ? first : firstOf(safe, mayGo)
    },
  }
}
