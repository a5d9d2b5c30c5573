// Which tensors a model of given shapes has outside its experts, under which names and with which shapes, in the order in
// which the packed folder stores them. The converter writes by this plan and the tensor tables are resolved by it: a plan
// has the form of the tables, with a spec in place of each tensor. Says nothing of where bytes lie or how they are
// quantized.
import type { ModelConfig } from './config.js'
import { familyNamed } from './families/families.js'
import type { AttentionShape, DeltaShape, LayerShape } from './layers.js'
import type { AttentionTensors, DeltaTensors, FeedForward, Matrix, Vector } from './tensors.js'

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

/** What a tensor of a layer (tensors.ts) must be. */
type SpecOf<T> = T extends Matrix ? MatrixSpec : T extends Vector ? VectorSpec : null

/** The same for each tensor of `T`, by the same names. */
type PlanOf<T> = { readonly [name in Exclude<keyof T, 'kind' | 'shape'>]: SpecOf<T[name]> }

export type FeedForwardPlan = PlanOf<FeedForward>

export interface AttentionPlan {
  readonly kind: 'full_attention'
  readonly shape: AttentionShape
  readonly tensors: PlanOf<AttentionTensors>
}

export interface DeltaPlan {
  readonly kind: 'linear_attention'
  readonly shape: DeltaShape
  readonly tensors: PlanOf<DeltaTensors>
}

export interface MoePlan {
  readonly kind: 'moe'
  readonly shape: Extract<LayerShape['feedForward'], { kind: 'moe' }>
  readonly router: MatrixSpec
  readonly routerBias: VectorSpec | null
  readonly selectionBias: VectorSpec | null
  readonly shared: { readonly gate: MatrixSpec | null; readonly expert: FeedForwardPlan } | null
}

export interface DensePlan {
  readonly kind: 'dense'
  readonly shape: Extract<LayerShape['feedForward'], { kind: 'dense' }>
  readonly expert: FeedForwardPlan
}

export interface LayerPlan {
  readonly inputNorm: VectorSpec
  readonly mixer: AttentionPlan | DeltaPlan
  readonly postAttentionNorm: VectorSpec
  readonly feedForward: MoePlan | DensePlan
}

export interface DraftHeadPlan {
  readonly fc: MatrixSpec
  readonly embeddingNorm: VectorSpec
  readonly hiddenNorm: VectorSpec
  readonly layer: LayerPlan
  readonly norm: VectorSpec
}

export interface TensorPlan {
  readonly embed: MatrixSpec
  readonly layers: readonly LayerPlan[]
  readonly norm: VectorSpec
  readonly lmHead: MatrixSpec | null // null: tied to the embedding
  readonly draftHead: DraftHeadPlan | null
}

/** The tensor by which a head for drafts is known. */
export const DRAFT_HEAD_MARK = 'mtp.fc.weight'

/** What the names of a layer's tensors begin with. */
export function layerPath({ numLayers }: ModelConfig, layer: number): string {
  return layer === numLayers ? 'mtp.layers.0.' : `model.layers.${layer}.`
}

export function planTensors(config: ModelConfig): TensorPlan {
  const { hiddenSize, vocabSize } = config
  return {
    embed: matrix('model.embed_tokens', vocabSize, hiddenSize),
    layers: config.layers.map((shape, layer) => planLayer(config, shape, layerPath(config, layer))),
    norm: norm(config, 'model.norm.weight', hiddenSize),
    lmHead: config.tieWordEmbeddings ? null : matrix('lm_head', vocabSize, hiddenSize),
    draftHead: config.draftHead && planDraftHead(config, config.draftHead),
  }
}

function planDraftHead(config: ModelConfig, shape: LayerShape): DraftHeadPlan {
  const { hiddenSize, numLayers } = config
  return {
    fc: matrix('mtp.fc', hiddenSize, 2 * hiddenSize),
    embeddingNorm: norm(config, 'mtp.pre_fc_norm_embedding.weight', hiddenSize),
    hiddenNorm: norm(config, 'mtp.pre_fc_norm_hidden.weight', hiddenSize),
    layer: planLayer(config, shape, layerPath(config, numLayers)),
    norm: norm(config, 'mtp.norm.weight', hiddenSize),
  }
}

/** The plan as a list, in stored order. */
export function listSpecs(plan: TensorPlan): TensorSpec[] {
  const { draftHead: head } = plan
  // Last of all: all other tensors lie where they do in folders without it.
  const headSpecs = head ? [head.fc, head.embeddingNorm, head.hiddenNorm, ...layerSpecs(head.layer), head.norm] : []
  return [plan.embed, ...plan.layers.flatMap(layerSpecs), plan.norm, ...present(plan.lmHead), ...headSpecs]
}

function layerSpecs({ inputNorm, mixer, postAttentionNorm, feedForward }: LayerPlan): TensorSpec[] {
  return [
    inputNorm,
    ...present(...Object.values<TensorSpec | null>(mixer.tensors)),
    postAttentionNorm,
    ...feedForwardSpecs(feedForward),
  ]
}

function feedForwardSpecs(plan: MoePlan | DensePlan): TensorSpec[] {
  if (plan.kind === 'dense') return Object.values<TensorSpec>(plan.expert)
  const { router, routerBias, selectionBias, shared } = plan
  const own = present(router, routerBias, selectionBias)
  return shared === null ? own : [...own, ...present(shared.gate), ...Object.values<TensorSpec>(shared.expert)]
}

function present(...specs: readonly (TensorSpec | null)[]): TensorSpec[] {
  return specs.filter(spec => spec !== null)
}

function planLayer(config: ModelConfig, { mixer, feedForward }: LayerShape, at: string): LayerPlan {
  return {
    inputNorm: norm(config, `${at}input_layernorm.weight`, config.hiddenSize),
    mixer:
      mixer.kind === 'full_attention'
        ? planAttention(config, mixer, `${at}self_attn.`)
        : planDelta(config, mixer, `${at}linear_attn.`),
    postAttentionNorm: norm(config, `${at}post_attention_layernorm.weight`, config.hiddenSize),
    feedForward:
      feedForward.kind === 'moe'
        ? planMoe(config, feedForward, `${at}mlp.`)
        : { kind: 'dense', shape: feedForward, expert: planFeedForward(config, feedForward.width, `${at}mlp.`) },
  }
}

function planAttention(config: ModelConfig, shape: AttentionShape, at: string): AttentionPlan {
  const { hiddenSize: hidden, headDim } = config
  const query = config.numHeads * headDim
  const queryRows = shape.outputGate ? 2 * query : query
  const key = config.numKvHeads * headDim
  const bias = (name: string, length: number) => (shape.qkvBias ? vector(`${at}${name}.bias`, length) : null)
  const headNorm = (name: string) => (shape.qkNorm ? norm(config, `${at}${name}.weight`, headDim) : null)
  return {
    kind: 'full_attention',
    shape,
    tensors: {
      qProj: matrix(`${at}q_proj`, queryRows, hidden),
      kProj: matrix(`${at}k_proj`, key, hidden),
      vProj: matrix(`${at}v_proj`, key, hidden),
      oProj: matrix(`${at}o_proj`, hidden, query),
      qBias: bias('q_proj', queryRows),
      kBias: bias('k_proj', key),
      vBias: bias('v_proj', key),
      oBias: shape.outputBias ? vector(`${at}o_proj.bias`, hidden) : null,
      qNorm: headNorm('q_norm'),
      kNorm: headNorm('k_norm'),
      sinks: shape.sinks ? vector(`${at}sinks`, config.numHeads) : null,
    },
  }
}

function planDelta(config: ModelConfig, shape: DeltaShape, at: string): DeltaPlan {
  const { hiddenSize: hidden, linearValueHeads: heads, linearConvDim } = config
  const value = heads * config.linearValueDim
  return {
    kind: 'linear_attention',
    shape,
    tensors: {
      inProjQkv: matrix(`${at}in_proj_qkv`, linearConvDim, hidden),
      inProjZ: matrix(`${at}in_proj_z`, value, hidden),
      inProjA: matrix(`${at}in_proj_a`, heads, hidden),
      inProjB: matrix(`${at}in_proj_b`, heads, hidden),
      outProj: matrix(`${at}out_proj`, hidden, value),
      conv: vector(`${at}conv1d.weight`, linearConvDim * config.linearConvKernel),
      aLog: vector(`${at}A_log`, heads, 'decay'),
      dtBias: vector(`${at}dt_bias`, heads),
      norm: vector(`${at}norm.weight`, config.linearValueDim),
    },
  }
}

function planMoe(config: ModelConfig, shape: MoePlan['shape'], at: string): MoePlan {
  const { numExperts, hiddenSize, sharedExpertIntermediateSize } = config
  return {
    kind: 'moe',
    shape,
    router: matrix(`${at}gate`, numExperts, hiddenSize, true),
    routerBias: shape.router.bias ? vector(`${at}gate.bias`, numExperts) : null,
    selectionBias: shape.router.selectionBias ? vector(`${at}gate.e_score_correction_bias`, numExperts) : null,
    shared:
      shape.shared === 'none'
        ? null
        : {
            gate: shape.shared === 'gated' ? matrix(`${at}shared_expert_gate`, 1, hiddenSize, true) : null,
            expert: planFeedForward(config, sharedExpertIntermediateSize, `${at}shared_expert.`),
          },
  }
}

function planFeedForward({ hiddenSize }: ModelConfig, width: number, at: string): FeedForwardPlan {
  return {
    gate: matrix(`${at}gate_proj`, width, hiddenSize),
    up: matrix(`${at}up_proj`, width, hiddenSize),
    down: matrix(`${at}down_proj`, hiddenSize, width),
  }
}

function norm(config: ModelConfig, name: string, length: number): VectorSpec {
  return vector(name, length, familyNamed(config.family).zeroCentredNorms ? 'zeroCentredNorm' : 'plain')
}

function matrix(name: string, rows: number, cols: number, isGate = false): MatrixSpec {
  return { kind: 'matrix', name, rows, cols, isGate }
}

function vector(name: string, length: number, role: VectorSpec['role'] = 'plain'): VectorSpec {
  return { kind: 'vector', name, length, role }
}
