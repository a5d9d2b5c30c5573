// What `moeflux inspect` says of the models that have short names, for the machines of the documents. By the same estimators.
import { estimateGpu } from '../dist/apps/cli/gpuEstimate.js'
import { GPU_WEIGHTS, PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../dist/base/defaults.js'
import { estimateModel, fourBitBytes, presets, usableMemory, WELL_KNOWN_MODELS } from '../dist/internal.js'

const THREADS = 6

/** What all machines of the tables have, as flags of `inspect`; also said in docs/models.md. */
export const RATES = { weightsPerSecond: THREADS * WEIGHTS_PER_THREAD, readsPerSecond: READ_SPEED }

/**
 * Names with the hub's repository, and presets that have no short name (yet). `config` is null where only the hub knows the shapes.
 */
export function namedModels() {
  const known = WELL_KNOWN_MODELS.map(({ names, title, hub, preset }) => ({
    ...{ names, title, hub },
    config: preset === undefined ? null : presets[preset].config,
  }))
  const taken = new Set(WELL_KNOWN_MODELS.map(({ preset }) => preset))
  const others = Object.values(presets).filter(({ name }) => !taken.has(name))
  return [...others.map(({ name, title, config }) => ({ names: [name], title, hub: null, config })), ...known]
}

export function findNamed(name) {
  const found = namedModels().find(({ names }) => names.includes(name))
  if (found === undefined) throw new Error(`no model is called ${name}`)
  return found
}

/** `least`: memory of a process that can run it at all. */
export function sizesOf(config) {
  const bytes = fourBitBytes(config)
  const { leastMemory } = estimateModel(config, bytes, { memory: 0, ...RATES }, contextOf(config))
  return { total: bytes.allExperts + bytes.resident, least: leastMemory }
}

/** Tokens a second on a machine with this much memory in all; null: it does not fit. */
export function onCpu(config, memory) {
  const rates = { memory: usableMemory(memory), ...RATES }
  const { fits, tokensPerSecond } = estimateModel(config, fourBitBytes(config), rates, contextOf(config))
  return fits === 'no' ? null : { tokensPerSecond, isStreamed: fits === 'streaming' }
}

/** The same with a GPU that has this much memory free. */
export function onGpu(config, gpuBytes, memory) {
  const bytes = usableMemory(memory)
  const facts = { bytes, ceiling: bytes, limit: bytes, limitedBy: 'machine' }
  const machine = { gpuBytes, memory: facts, cores: THREADS, gpuWeightsPerSecond: GPU_WEIGHTS, ...RATES }
  const planned = { tokens: contextOf(config), sequences: 1, isContext: true }
  const { tokensPerSecond, experts } = estimateGpu(config, fourBitBytes(config), machine, planned)
  return tokensPerSecond === null ? null : { tokensPerSecond, isStreamed: experts.disk > 0 }
}

function contextOf({ maxPositionEmbeddings }) {
  return Math.min(PLANNED_TOKENS, maxPositionEmbeddings)
}
