// What the host of a virtual machine has taken from its processors: without it, nobody can tell a slow engine from a crowded host.
import { readFileSync } from 'node:fs'

/** Begins to count. What it returns says, in words, what was taken since. */
export function stealMeter() {
  const before = jiffies()
  return () => {
    const after = jiffies()
    if (before === null || after === null) return 'not known'
    const [stolen, used] = ['stolen', 'used'].map(name => after[name] - before[name])
    if (stolen + used === 0) return 'none'
    return `${((100 * stolen) / (stolen + used)).toFixed(1)}% of the processor time that was wanted`
  }
}

/** Of all processors since the machine has started; null where the system does not say (it is not Linux). */
function jiffies() {
  try {
    const [user, nice, system, , , irq, softirq, stolen] = readFileSync('/proc/stat', 'utf8')
      .split(/\s+/)
      .slice(1, 9)
      .map(Number)
    return { stolen, used: user + nice + system + irq + softirq }
  } catch {
    return null
  }
}
