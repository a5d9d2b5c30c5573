// Which tensors a model of given shapes has outside its experts, under which names and with which shapes, in the order in
// which the packed folder stores them. The converter writes by this plan and the tensor tables are resolved by it.
// Says nothing of where bytes lie or how they are quantized.
import type { ModelConfig } from './config.js'

export interface MatrixSpec {
  readonly kind: 'matrix'
  readonly name: string // '.weight', '.scales' and '.biases' follow in the manifest
  readonly rows: number
  readonly cols: number
  /** Routers and shared-expert gates: small, and sensitive to rounding. */
  readonly isGate: boolean
}

export interface VectorSpec {
  readonly kind: 'vector'
  readonly name: string // the whole name in the manifest
  readonly length: number
  /** 'zeroCentredNorm': stored without its 1 in HF layouts. 'decay': A_log, always kept as F32. */
  readonly role: 'zeroCentredNorm' | 'decay' | 'plain'
}

export type TensorSpec = MatrixSpec | VectorSpec

interface CommonLayerPlan {
  readonly inputNorm: VectorSpec
  readonly postAttentionNorm: VectorSpec
  readonly router: MatrixSpec
  readonly sharedExpertGate: MatrixSpec
  readonly sharedExpert: { readonly gate: MatrixSpec; readonly up: MatrixSpec; readonly down: MatrixSpec }
}

interface FullAttentionPlan extends CommonLayerPlan {
  readonly kind: 'full_attention'
  readonly mixer: {
    readonly qProj: MatrixSpec
    readonly kProj: MatrixSpec
    readonly vProj: MatrixSpec
    readonly oProj: MatrixSpec
    readonly qNorm: VectorSpec
    readonly kNorm: VectorSpec
  }
}

interface LinearAttentionPlan extends CommonLayerPlan {
  readonly kind: 'linear_attention'
  readonly mixer: {
    readonly inProjQkv: MatrixSpec
    readonly inProjZ: MatrixSpec
    readonly inProjA: MatrixSpec
    readonly inProjB: MatrixSpec
    readonly outProj: MatrixSpec
    readonly conv: VectorSpec
    readonly aLog: VectorSpec
    readonly dtBias: VectorSpec
    readonly norm: VectorSpec
  }
}

export type LayerPlan = FullAttentionPlan | LinearAttentionPlan

export interface TensorPlan {
  readonly embed: MatrixSpec
  readonly layers: readonly LayerPlan[]
  readonly norm: VectorSpec
  readonly lmHead: MatrixSpec | null // null: tied to the embedding
}

export function planTensors(config: ModelConfig): TensorPlan {
  const { hiddenSize, vocabSize } = config
  return {
    embed: matrix('model.embed_tokens', vocabSize, hiddenSize),
    layers: config.layerKinds.map((_, layer) => planLayer(config, layer)),
    norm: vector('model.norm.weight', hiddenSize, 'zeroCentredNorm'),
    lmHead: config.tieWordEmbeddings ? null : matrix('lm_head', vocabSize, hiddenSize),
  }
}

/** The plan as a list, in stored order. */
export function listSpecs(plan: TensorPlan): TensorSpec[] {
  const layers = plan.layers.flatMap(layer => [
    layer.inputNorm,
    ...Object.values<TensorSpec>(layer.mixer),
    layer.postAttentionNorm,
    layer.router,
    layer.sharedExpertGate,
    ...Object.values<TensorSpec>(layer.sharedExpert),
  ])
  return [plan.embed, ...layers, plan.norm, ...(plan.lmHead === null ? [] : [plan.lmHead])]
}

function planLayer(config: ModelConfig, layer: number): LayerPlan {
  const hidden = config.hiddenSize
  const shared = config.sharedExpertIntermediateSize
  const at = `model.layers.${layer}.`
  const common: CommonLayerPlan = {
    inputNorm: vector(`${at}input_layernorm.weight`, hidden, 'zeroCentredNorm'),
    postAttentionNorm: vector(`${at}post_attention_layernorm.weight`, hidden, 'zeroCentredNorm'),
    router: matrix(`${at}mlp.gate`, config.numExperts, hidden, true),
    sharedExpertGate: matrix(`${at}mlp.shared_expert_gate`, 1, hidden, true),
    sharedExpert: {
      gate: matrix(`${at}mlp.shared_expert.gate_proj`, shared, hidden),
      up: matrix(`${at}mlp.shared_expert.up_proj`, shared, hidden),
      down: matrix(`${at}mlp.shared_expert.down_proj`, hidden, shared),
    },
  }
  if (config.layerKinds[layer] === 'full_attention') {
    const query = config.numHeads * config.headDim
    const key = config.numKvHeads * config.headDim
    const attention = `${at}self_attn.`
    return {
      kind: 'full_attention',
      ...common,
      mixer: {
        qProj: matrix(`${attention}q_proj`, 2 * query, hidden),
        kProj: matrix(`${attention}k_proj`, key, hidden),
        vProj: matrix(`${attention}v_proj`, key, hidden),
        oProj: matrix(`${attention}o_proj`, hidden, query),
        qNorm: vector(`${attention}q_norm.weight`, config.headDim, 'zeroCentredNorm'),
        kNorm: vector(`${attention}k_norm.weight`, config.headDim, 'zeroCentredNorm'),
      },
    }
  }
  const heads = config.linearValueHeads
  const value = heads * config.linearValueDim
  const linear = `${at}linear_attn.`
  return {
    kind: 'linear_attention',
    ...common,
    mixer: {
      inProjQkv: matrix(`${linear}in_proj_qkv`, config.linearConvDim, hidden),
      inProjZ: matrix(`${linear}in_proj_z`, value, hidden),
      inProjA: matrix(`${linear}in_proj_a`, heads, hidden),
      inProjB: matrix(`${linear}in_proj_b`, heads, hidden),
      outProj: matrix(`${linear}out_proj`, hidden, value),
      conv: vector(`${linear}conv1d.weight`, config.linearConvDim * config.linearConvKernel),
      aLog: vector(`${linear}A_log`, heads, 'decay'),
      dtBias: vector(`${linear}dt_bias`, heads),
      norm: vector(`${linear}norm.weight`, config.linearValueDim),
    },
  }
}

function matrix(name: string, rows: number, cols: number, isGate = false): MatrixSpec {
  return { kind: 'matrix', name, rows, cols, isGate }
}

function vector(name: string, length: number, role: VectorSpec['role'] = 'plain'): VectorSpec {
  return { kind: 'vector', name, length, role }
}
