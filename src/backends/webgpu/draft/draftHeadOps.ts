// The ops of the head for drafts around its layer: what it takes in, and the keys and values of tokens that are known, which need
// neither attention nor experts. By the kernels of prompts for any number of rows, or by those of single tokens.
import { type Op, sequence } from '../../../gpu/device/op.js'
import type { MatrixPart } from '../../../gpu/memory/matrixWeights.js'
import { attentionInputOp } from '../../../ops/attention/attentionInput.gpu.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { embedOp } from '../../../ops/embed/embed.gpu.js'
import { matMulOp } from '../../../ops/matmul/matMul.gpu.js'
import { matVecOp } from '../../../ops/matmul/matVec.gpu.js'
import { addNormOp } from '../../../ops/norm/addNorm.gpu.js'
import { joinHalvesOp, type RowBefore } from '../../../ops/norm/concatNorms.gpu.js'
import type { AttentionWeights } from '../memory/layerWeights.js'
import { headOf, type ResidentWeights } from '../memory/residentWeights.js'
import type { LayerParts } from '../prefill/prefillLayer.js'

/** Which kernels compute products: those of prompts, or those of single tokens. */
export type ProductKind = 'many' | 'single'

/** Embeddings of the tokens and the rows before them → hidden, the layer's input. */
export async function headInputOp(
  parts: LayerParts,
  weights: ResidentWeights,
  where: RowBefore,
  kind: ProductKind,
): Promise<Op> {
  const { gpu, config, space, states } = parts
  const { hiddenSize, rmsNormEps } = config
  const head = headOf(weights)
  const { step, status, tokenInfo, hidden, mixerOut: embedded, joined } = space
  const norms = where === 'next' ? head.chainNorms : head.inputNorms
  const join = { step, tokenInfo, norms, embedded, hidden, joined: joined.values }
  const out = { outStride: hiddenSize, label: 'draftInput' }
  return all([
    embedOp(gpu, weights.embed, tokenInfo, embedded),
    joinHalvesOp(gpu, join, states, hiddenSize, rmsNormEps, where),
    kind === 'many'
      ? matMulOp(gpu, head.fc, joined, hidden, { ...out, step, maxTokens: space.shape.maxTokens })
      : matVecOp(gpu, head.fc, joined.values, hidden, { ...out, status }),
  ])
}

/** Keys and values of a step's tokens, whose hidden rows are still there; these are kept for the next step, and gone after this. */
export async function headRowsOp(parts: LayerParts, weights: ResidentWeights, kind: ProductKind): Promise<Op> {
  const { gpu, config, space, kv } = parts
  const { layer } = headOf(weights)
  const mixer = layer.mixer as AttentionWeights
  const { step, status, tokenInfo, angles, hidden, normed, mixerIn, queries } = space
  const { rmsNormEps: eps } = config
  const columns = attentionColumns(config, mixer.shape)
  const keysAndValues = after(mixer.inProj, columns.k)
  const product = { outStride: columns.stride, bias: mixer.inBias, label: 'draftRows' }
  const norm = { weight: layer.inputNorm, delta: null, hidden, out: normed.values }
  const project =
    kind === 'many'
      ? all([
          addNormOp(gpu, norm, config.hiddenSize, eps),
          matMulOp(gpu, keysAndValues, normed, mixerIn, { ...product, step, maxTokens: space.shape.maxTokens }),
        ])
      : matVecOp(gpu, keysAndValues, hidden, mixerIn, { ...product, status, norm: { weight: layer.inputNorm, eps } })
  const input = { norms: mixer.qkNorms, tokenInfo, angles, inputs: mixerIn, queries }
  return all([
    headInputOp(parts, weights, 'rows', kind),
    project,
    attentionInputOp(gpu, config, mixer.shape, input, kv, config.numLayers),
  ])
}

/** Those of the matrices whose output begins at a column or after it. */
function after(matrices: readonly MatrixPart[], column: number): MatrixPart[] {
  return matrices.flatMap(part => {
    const segments = part.segments.filter(({ out }) => out >= column)
    return segments.length > 0 ? [{ ...part, segments }] : []
  })
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}
