// Runs layers with the prompt's kernels and reads what happens between them. For tests and the engine view: slow.
import { readBuffer } from '../../gpu/device/readBuffer.js'
import type { ModelConfig } from '../../model/config.js'
import type { LayerProbe, ProbeRequest, ProbeResult } from '../backend.js'
import type { Head } from './decode/lmHead.js'
import type { Workspace } from './memory/workspace.js'
import type { PromptPass } from './prefill/prefillPass.js'

type RouterProbe = Omit<LayerProbe, 'layer' | 'mixerOut' | 'normed' | 'mlpOut' | 'out'>

/** Of a layer without experts. */
const NO_ROUTER: RouterProbe = {
  routerLogits: new Float32Array(0),
  routerIndices: new Int32Array(0),
  routerWeights: new Float32Array(0),
  sharedOut: new Float32Array(0),
  sharedGate: new Float32Array(0),
}

/** The step's runs are written already; at most maxTokens rows. */
export async function probeLayers(
  device: GPUDevice,
  config: ModelConfig,
  space: Workspace,
  pass: PromptPass,
  head: Head,
  request: ProbeRequest,
): Promise<ProbeResult> {
  const { hiddenSize, numExperts, numLayers } = config
  const rows = 'tokens' in request ? request.tokens.length : request.hidden.length / hiddenSize
  const size = { tokens: rows, runs: 1 }
  const { k, maxTokens } = space.shape
  const read = async (buffer: GPUBuffer, floats: number, offset = 0) =>
    new Float32Array(await readBuffer(device, buffer, offset * 4, floats * 4))
  const layers: LayerProbe[] = []
  const wanted = 'layer' in request ? [request.layer] : request.layers
  let mixerOut: Float32Array
  let router: RouterProbe = NO_ROUTER
  const tap = {
    async afterMixer(layer: number) {
      if (!wanted || wanted.includes(layer)) mixerOut = await read(space.mixerOut, rows * hiddenSize)
    },
    async afterRouter(layer: number) {
      if (wanted && !wanted.includes(layer)) return
      const { feedForward } = config.layers[layer]
      const shared = feedForward.kind === 'moe' ? feedForward.shared : 'none'
      const place = config.moeLayers.indexOf(layer)
      const logits = await read(space.logits, rows * (numExperts + 1))
      const routerLogits = new Float32Array(rows * numExperts)
      const sharedGate = new Float32Array(shared === 'gated' ? rows : 0)
      for (let row = 0; row < rows; row++) {
        const at = row * (numExperts + 1)
        routerLogits.set(logits.subarray(at, at + numExperts), row * numExperts)
        if (shared === 'gated') sharedGate[row] = 1 / (1 + Math.exp(-logits[at + numExperts]))
      }
      const mixing = await read(space.mixing, rows * k * 2)
      const choice = await read(space.choice, rows * k, place * maxTokens * k)
      router = {
        routerLogits,
        routerIndices: new Int32Array(choice.buffer),
        routerWeights: mixing.filter((_, i) => i % 2 === 1),
        sharedOut: shared === 'none' ? new Float32Array(0) : await read(space.sharedOut, rows * hiddenSize),
        sharedGate,
      }
    },
    async afterLayer(layer: number) {
      if (wanted && !wanted.includes(layer)) return
      const mlpOut = await read(space.mlpOut, rows * hiddenSize)
      const out = await read(space.hidden, rows * hiddenSize)
      for (let i = 0; i < out.length; i++) out[i] += mlpOut[i]
      const normed = await read(space.normed.values, rows * hiddenSize)
      layers.push({ layer, mixerOut, normed, ...router, mlpOut, out })
      router = NO_ROUTER
    },
  }
  const recorder = pass.recorder()
  if ('layer' in request) {
    device.queue.writeBuffer(space.hidden, 0, new Float32Array(request.hidden))
    device.queue.writeBuffer(space.mlpOut, 0, new Float32Array(rows * hiddenSize))
    await pass.run(recorder, size, { first: request.layer, end: request.layer + 1, tap })
    return { embed: null, layers, finalNorm: null, logits: null }
  }
  pass.embed(recorder, size)
  recorder.submit()
  const embed = await read(space.hidden, rows * hiddenSize)
  const last = request.end === undefined ? () => head.recordNorm(recorder, rows) : undefined
  await pass.run(recorder, size, { end: request.end ?? numLayers, tap, last })
  if (request.end !== undefined) return { embed, layers, finalNorm: null, logits: null }
  const finalNorm = await read(space.normed.values, rows * hiddenSize)
  const logits = await head.readLogits(Array.from({ length: rows }, (_, i) => i))
  return { embed, layers, finalNorm, logits }
}
