// Looks inside the forward pass: the same jobs as a step, one layer at a time, reading the activations in between. Works
// on a fork of the sequence, which stays as it is.
import type { LayerProbe, ProbeRequest, ProbeResult } from '../backend.js'
import { joinProbes } from '../joinProbes.js'
import { HEAD_ROWS } from './memory/scratch.js'
import type { WasmSequence } from './wasmSequence.js'
import type { ActiveRun, WasmSteps } from './wasmSteps.js'

const NO_PARTS = { embed: false, firstLayer: 0, endLayer: 0, headRows: [], argmax: false, probe: true } as const

export async function probeModel(
  backend: WasmSteps,
  sequence: WasmSequence,
  request: ProbeRequest,
): Promise<ProbeResult> {
  const { hiddenSize } = backend.config
  const total = 'layer' in request ? request.hidden.length / hiddenSize : request.tokens.length
  const fork = backend.createSequence()
  const parts: ProbeResult[] = []
  try {
    const held = await sequence.hold()
    await fork.restore(held)
    held.release()
    for (let at = 0; at < total; at += backend.chunkTokens) {
      const end = Math.min(total, at + backend.chunkTokens)
      const tokens = 'layer' in request ? new Array<number>(end - at).fill(0) : request.tokens.slice(at, end)
      const [run] = backend.begin([{ sequence: fork, tokens }])
      try {
        backend.writeRuns([run])
        const hidden = 'layer' in request ? request.hidden.subarray(at * hiddenSize, end * hiddenSize) : null
        parts.push(await probeChunk(backend, run, request, hidden))
        fork.commit(tokens.length, run.next, 0, null)
      } catch (error) {
        fork.discard(run.next)
        throw error
      }
    }
  } finally {
    fork.release()
  }
  return joinProbes(parts)
}

async function probeChunk(
  backend: WasmSteps,
  run: ActiveRun,
  request: ProbeRequest,
  hidden: Float32Array | null,
): Promise<ProbeResult> {
  const { runtime, config } = backend
  const { scratch } = runtime.model
  const rows = run.tokens.length
  if ('layer' in request) {
    runtime.writeRows(scratch.hidden, hidden as Float32Array, config.hiddenSize)
    await backend.runParts({ ...NO_PARTS, firstLayer: request.layer, endLayer: request.layer + 1 })
    return { embed: null, layers: [readLayer(backend, request.layer, rows)], finalNorm: null, logits: null }
  }
  await backend.runParts({ ...NO_PARTS, embed: true })
  const embed = runtime.readRows(scratch.hidden, rows, config.hiddenSize)
  const layers: LayerProbe[] = []
  for (let layer = 0; layer < (request.end ?? config.numLayers); layer++) {
    await backend.runParts({ ...NO_PARTS, firstLayer: layer, endLayer: layer + 1 })
    if (!request.layers || request.layers.includes(layer)) layers.push(readLayer(backend, layer, rows))
  }
  if (request.end !== undefined) return { embed, layers, finalNorm: null, logits: null }
  const finalNorm = new Float32Array(rows * config.hiddenSize)
  const logits = new Float32Array(rows * config.vocabSize)
  for (let at = 0; at < rows; at += HEAD_ROWS) {
    const count = Math.min(HEAD_ROWS, rows - at)
    await backend.runParts({ ...NO_PARTS, headRows: Array.from({ length: count }, (_, i) => at + i) })
    finalNorm.set(runtime.readRows(scratch.private[0].head.x, count, config.hiddenSize), at * config.hiddenSize)
    for (let i = 0; i < count; i++) logits.set(runtime.logitsRow(i), (at + i) * config.vocabSize)
  }
  return { embed, layers, finalNorm, logits }
}

function readLayer({ runtime, config }: WasmSteps, layer: number, rows: number): LayerProbe {
  const { scratch, expertsPerToken: k } = runtime.model
  const read = (from: Parameters<typeof runtime.readRows>[0], dim: number) => runtime.readRows(from, rows, dim)
  const { feedForward } = config.layers[layer]
  const shared = feedForward.kind === 'moe' ? feedForward.shared : 'none'
  const none = new Float32Array(0)
  const place = config.moeLayers.indexOf(layer)
  const routed =
    feedForward.kind === 'moe'
      ? {
          routerLogits: read(scratch.routerLogits, config.numExperts),
          routerIndices: Int32Array.from(runtime.routing(place).subarray(0, rows * k)),
          routerWeights: runtime.routerWeights(place).slice(0, rows * k),
        }
      : { routerLogits: none, routerIndices: new Int32Array(0), routerWeights: none }
  return {
    layer,
    mixerOut: read(scratch.mixerOut, config.hiddenSize),
    normed: read(scratch.input.x, config.hiddenSize),
    ...routed,
    sharedOut: shared === 'none' ? none : read(scratch.sharedOut, config.hiddenSize),
    sharedGate: shared === 'gated' ? read(scratch.sharedGate, 1).map(x => 1 / (1 + Math.exp(-x))) : none,
    mlpOut: read(scratch.mlpOut, config.hiddenSize),
    out: read(scratch.hidden, config.hiddenSize),
  }
}
