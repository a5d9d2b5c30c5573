// The self-test of a prompt's attention: the first full layer's own kernel, sinks and window, over keys and values made up here.
import type { PackedModel } from '../../../files/packed/packedModel.js'
import type { Op } from '../../../gpu/device/op.js'
import { EMPTY_STATE } from '../../../gpu/memory/statePool.js'
import { sigmoidGate } from '../../../ops/activation/reference.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { attention } from '../../../ops/attention/reference.js'
import { takeColumns } from '../../../ops/matmul/reference.js'
import { readVector } from '../../../ops/matmul/storedWeights.js'
import { PAGE_TOKENS } from '../../kvPages.js'
import type { LayerWeights } from '../memory/layerWeights.js'
import { StepInfo } from '../memory/stepInfo.js'
import { type LayerParts, promptAttentionOp } from '../prefill/prefillLayer.js'
import { differs, EXACT, FAST, noise } from './selfTestTools.js'

const LENGTH = 40 // positions: more than a tile of keys, and not a whole number of them

/** What is wrong with the last of some tokens; null where all is well, or where no layer has it. */
export async function checkAttention(
  parts: LayerParts,
  packed: PackedModel,
  layers: readonly LayerWeights[],
  tokens: number,
  run: (op: Op, tokens: number, buffer: GPUBuffer, length: number) => Promise<Float32Array>,
): Promise<string | null> {
  const { gpu, config, space, kv } = parts
  const index = config.layerKinds.indexOf('full_attention')
  const layer = layers[index]?.mixer
  const tensors = packed.tensors.layers[index]?.mixer
  if (layer?.kind !== 'full_attention' || tensors?.kind !== 'full_attention') return null
  const { numHeads: heads, numKvHeads: kvHeads, headDim } = config
  const [width, rowSize] = [heads * headDim, kvHeads * headDim]
  const { shape, sinks } = layer
  const { stride } = attentionColumns(config, shape)
  const { queue } = gpu.device
  const [inputs, queries] = [noise(tokens * stride), noise(tokens * width)]
  const memory = noise(2 * PAGE_TOKENS * rowSize)
  queue.writeBuffer(space.mixerIn, 0, inputs)
  queue.writeBuffer(space.queries, 0, queries)
  queue.writeBuffer(kv.buffer(index), 0, memory)
  const position = LENGTH - tokens
  const plan = {
    tokens: new Array<number>(tokens).fill(0),
    position,
    pages: [0],
    stateIn: EMPTY_STATE,
    stateOut: EMPTY_STATE,
  }
  new StepInfo(gpu.device, config, space, kv).write([plan])
  const { step, tokenInfo, mixerIn, mixed } = space
  const buffers = { step, tokenInfo, inputs: mixerIn, queries: space.queries, sinks, out: mixed.values }
  const op = await promptAttentionOp(parts, shape, buffers, index)
  const got = await run(op, tokens, mixed.values, tokens * width)
  const query = queries.subarray((tokens - 1) * width)
  const sizes = { heads, kvHeads, headDim, window: shape.window }
  const keys = memory.subarray(0, PAGE_TOKENS * rowSize)
  const values = memory.subarray(PAGE_TOKENS * rowSize)
  const logits = tensors.sinks && (await readVector(tensors.sinks, packed.weights))
  const want = attention(query, [keys], [values], PAGE_TOKENS, LENGTH, sizes, logits)
  const last = inputs.subarray((tokens - 1) * stride, (tokens - 1) * stride + 2 * width)
  const gated = shape.outputGate ? sigmoidGate(want, takeColumns(last, 2 * headDim, headDim, headDim)) : want
  return differs('attention', got.subarray((tokens - 1) * width), gated, gpu.fast ? FAST : EXACT)
}
