// What all models of a server have done together, for its metrics: those that are in memory, and those that were, so that a
// counter never falls when a model is unloaded.
import type { ModelStats, SessionState } from '../../index.js'
import { expertCount, NO_EXPERT_STATS } from '../../internal.js'
import type { LoadedModel } from './loadedModel.js'

/** What is so now, and not a sum over time: gone with the model. */
const MOMENTARY = new Set([
  ...['residentBytes', 'expertSlots', 'expertSlotsUsed', 'expertMemory', 'slots', 'used'],
  ...['running', 'waiting', 'states', 'bytes', 'byteBudget', 'pending'],
])

export class ShelfTotals {
  private pastStats: ModelStats | null = null
  private pastSession: SessionState | null = null

  constructor(private readonly loaded: () => readonly LoadedModel[]) {}

  /** A model is about to be closed. */
  retire({ model, session }: LoadedModel): void {
    this.pastStats = together([this.pastStats, past(model.stats())])
    this.pastSession = together([this.pastSession, past(session.state)])
  }

  get stats(): ModelStats {
    const sum = together([this.pastStats, ...this.loaded().map(({ model }) => model.stats())])
    return sum ?? NO_STATS
  }

  get session(): SessionState {
    const sum = together([this.pastSession, ...this.loaded().map(({ session }) => session.state)])
    return sum ?? NO_SESSION
  }

  /** Of all models in memory, wherever they are. */
  get experts(): number {
    return this.loaded().reduce((sum, { model }) => sum + expertCount(model.config), 0)
  }
}

const NO_SESSION: SessionState = {
  running: 0,
  waiting: 0,
  states: 0,
  bytes: 0,
  byteBudget: 0,
  found: { memory: 0, disk: 0, shared: 0, nowhere: 0 },
  tiers: [],
}

const NO_STATS: ModelStats = {
  ...NO_EXPERT_STATS,
  tokens: 0,
  promptTokens: 0,
  decodeTokens: 0,
  steps: 0,
  computeSeconds: 0,
  phaseSeconds: {},
  residentBytes: 0,
  tiers: null,
}

function together<T>(parts: readonly (T | null)[]): T | null {
  let sum: T | null = null
  for (const part of parts) if (part !== null) sum = sum === null ? part : (addUp(sum, part) as T)
  return sum
}

/** Numbers are added, wherever they are, or the longest taken; what is no number is the first's, or true where either is. */
function addUp(a: unknown, b: unknown, name = ''): unknown {
  if (a === null || a === undefined) return b
  if (b === null || b === undefined) return a
  if (typeof a === 'number') return name.startsWith('longest') ? Math.max(a, b as number) : a + (b as number)
  if (typeof a === 'boolean') return a || b
  if (Array.isArray(a)) {
    const other = b as unknown[]
    return Array.from({ length: Math.max(a.length, other.length) }, (_, i) => addUp(a[i], other[i]))
  }
  if (typeof a !== 'object') return a
  const [first, second] = [a as Record<string, unknown>, b as Record<string, unknown>]
  const keys = new Set([...Object.keys(first), ...Object.keys(second)])
  return Object.fromEntries([...keys].map(key => [key, addUp(first[key], second[key], key)]))
}

function past<T>(value: T, name = ''): T {
  if (typeof value === 'number') return (MOMENTARY.has(name) ? 0 : value) as T
  if (typeof value === 'boolean') return false as T
  if (Array.isArray(value)) return value.map(item => past(item)) as T
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, past(item, key)])) as T
}
