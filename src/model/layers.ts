// What a layer of a model is, as data: which mixer, which feed-forward block, and how each of them computes. Descriptors
// of families make these shapes; tensor tables, sizes, packing and backends follow from them. Types and tiny helpers only.

/** Frequencies stretched for contexts longer than those a model was trained on. */
export interface YarnScaling {
  readonly factor: number
  readonly betaFast: number
  readonly betaSlow: number
  readonly originalContext: number
  readonly truncate: boolean // the ramp begins and ends at whole channels
  readonly attentionFactor: number // cos and sin are multiplied with it
}

export interface RopeShape {
  readonly dims: number // channels of a head that rotate, in half-split pairs
  readonly theta: number
  readonly yarn: YarnScaling | null
}

export interface AttentionShape {
  readonly kind: 'full_attention'
  readonly outputGate: boolean // q_proj holds per head query, then gate
  readonly qkNorm: boolean // an RMS norm per head of queries and keys
  readonly qkvBias: boolean
  readonly outputBias: boolean
  readonly rope: RopeShape
  readonly window: number | null // the newest positions that a token sees, its own among them
  readonly sinks: boolean // one more logit per head in each softmax
}

/** Key head of value head h: h / (valueHeads / keyHeads). Sources with another order are reordered when packing. */
export interface DeltaShape {
  readonly kind: 'linear_attention'
}

export interface RouterShape {
  readonly score: 'softmax' | 'sigmoid'
  readonly order: 'scoreThenTop' | 'topThenSoftmax'
  readonly bias: boolean // added to the logits
  readonly selectionBias: boolean // added to the scores for the choice alone
  /** Experts are in `count` groups; those of the `used` best groups can be chosen. A group's score: its two best. */
  readonly groups: { readonly count: number; readonly used: number } | null
  readonly renormalize: boolean // weights of the chosen sum to 1, before the scale
  readonly scale: number
}

/** Softmax over all experts, the top K, weights renormalized to sum to 1. */
export const SOFTMAX_ROUTER: RouterShape = {
  score: 'softmax',
  order: 'scoreThenTop',
  bias: false,
  selectionBias: false,
  groups: null,
  renormalize: true,
  scale: 1,
}

/** silu(gate) · up; or, with g = min(gate, limit) and u = clamp(up, ±limit): (u + 1) · g · sigmoid(alpha · g). */
export type Activation =
  | { readonly kind: 'silu' }
  | { readonly kind: 'clampedSwiglu'; readonly limit: number; readonly alpha: number }

export interface MoeShape {
  readonly kind: 'moe'
  readonly router: RouterShape
  readonly shared: 'none' | 'gated' | 'plain'
  readonly activation: Activation
  readonly expertBias: boolean // on gate, up and down of every routed expert
}

export interface DenseShape {
  readonly kind: 'dense'
  readonly width: number
  readonly activation: Activation
}

export interface LayerShape {
  readonly mixer: AttentionShape | DeltaShape
  readonly feedForward: MoeShape | DenseShape
}

export type LayerKind = LayerShape['mixer']['kind']

/** The layers that have experts, in order. Expert files, slots, traces and routing hold these layers alone. */
export function moeLayers(layers: readonly LayerShape[]): number[] {
  return layers.flatMap(({ feedForward }, layer) => (feedForward.kind === 'moe' ? [layer] : []))
}
