// The model as compute workers know it: addresses instead of tensors, and what each layer computes. Plain data, so that it
// can be posted to workers.
import type { ModelConfig } from '../../../model/config.js'
import type { Activation, AttentionShape, MoeShape } from '../../../model/layers.js'
import { allLayers } from '../../../model/tensorParts.js'
import type {
  AttentionTensors,
  DeltaTensors,
  DenseTensors,
  ExpertLayout,
  FeedForward,
  Matrix,
  ModelTensors,
  MoeTensors,
  Vector,
} from '../../../model/tensors.js'
import type { Precision } from '../../backend.js'
import { floatTypeCode } from '../kernels.js'
import { type KernelMatrix, kernelMatrix, type MemoryPlan, type PlacedMatrix, type Slot } from './bankLayout.js'
import type { InputForm, Scratch } from './scratch.js'

/** A matrix with the index of its form among the model's (-1: plain, takes floats as they are), and its bias. */
export interface Weights extends PlacedMatrix {
  readonly form: number
  readonly bias: number // in the same bank; 0: none
  readonly biasType: number // floatTypeCode
}

export interface PlacedFeedForward {
  readonly gate: Weights
  readonly up: Weights
  readonly down: Weights
  readonly activation: Activation
}

export interface PlacedAttention {
  readonly kind: 'full_attention'
  readonly shape: AttentionShape
  readonly qProj: Weights
  readonly kProj: Weights
  readonly vProj: Weights
  readonly oProj: Weights
  readonly qNorm: number // 0: none
  readonly kNorm: number // 0: none
  readonly sinks: number // in the state bank; 0: none
}

export interface PlacedDelta {
  readonly kind: 'linear_attention'
  readonly inProjQkv: Weights
  readonly inProjZ: Weights
  readonly inProjA: Weights
  readonly inProjB: Weights
  readonly outProj: Weights
  // In the state bank:
  readonly taps: number // [4, convDim], tap-major
  readonly aLog: number
  readonly dtBias: number
  readonly norm: number
}

export interface PlacedMoe {
  readonly kind: 'moe'
  readonly shape: MoeShape
  readonly router: Weights
  readonly selectionBias: number // 0: none
  readonly shared: PlacedShared | null
  /** Addresses relative to the slot; the bank is the slot's. */
  readonly expert: PlacedFeedForward
}

export interface PlacedShared {
  readonly gate: Weights | null // null: it counts whole
  readonly expert: PlacedFeedForward
}

export interface PlacedDense {
  readonly kind: 'dense'
  readonly expert: PlacedFeedForward
}

export interface PlacedLayer {
  readonly inputNorm: number
  readonly postAttentionNorm: number
  readonly stateBank: number
  readonly mixer: PlacedAttention | PlacedDelta
  readonly feedForward: PlacedMoe | PlacedDense
}

/** What a head for drafts has besides its layer. */
export interface PlacedHead {
  readonly fc: Weights
  readonly embeddingNorm: number
  readonly hiddenNorm: number
  readonly norm: number
}

export interface PlacedModel {
  readonly config: ModelConfig
  readonly precision: Precision
  readonly expertsPerToken: number
  readonly chunkTokens: number
  readonly scratch: Scratch
  readonly layers: readonly PlacedLayer[] // that of a head for drafts last
  readonly embed: Weights
  readonly norm: number
  readonly lmHead: Weights
  readonly draftHead: PlacedHead | null
  readonly slots: readonly Slot[]
}

/** The matrices of a feed-forward block. */
function partsOf({ gate, up, down }: FeedForward): Matrix[] {
  return [gate, up, down]
}

/**
 * The forms of input that a model's matrices take, each once. Routers and gates get float32 activations at any precision:
 * they are small, and a rounded score that picks another expert costs more than all other rounding together.
 */
export function modelForms(tensors: ModelTensors, experts: readonly ExpertLayout[], precision: Precision): InputForm[] {
  const forms: InputForm[] = []
  addForms(forms, precision, [tensors.lmHead, ...experts.flatMap(partsOf)])
  if (tensors.draftHead !== null) addForms(forms, precision, [tensors.draftHead.fc])
  for (const { mixer, feedForward } of allLayers(tensors)) {
    if (feedForward.kind === 'dense') addForms(forms, precision, partsOf(feedForward.expert))
    else {
      const { router, shared } = feedForward
      addForms(forms, 'exact', shared?.gate ? [router, shared.gate] : [router])
      if (shared) addForms(forms, precision, partsOf(shared.expert))
    }
    if (mixer.kind === 'full_attention') {
      addForms(forms, precision, [mixer.qProj, mixer.kProj, mixer.vProj, mixer.oProj])
    } else {
      addForms(forms, 'exact', [mixer.inProjA, mixer.inProjB])
      addForms(forms, precision, [mixer.inProjQkv, mixer.inProjZ, mixer.outProj])
    }
  }
  return forms
}

/** What routed experts do between their products: one for all layers of a model. */
export function expertActivation({ layers }: ModelConfig): Activation {
  const found = layers.find(({ feedForward }) => feedForward.kind === 'moe')
  return found?.feedForward.activation ?? { kind: 'silu' }
}

/** The forms of experts' matrices alone. */
export function expertForms(experts: readonly ExpertLayout[], precision: Precision): InputForm[] {
  const forms: InputForm[] = []
  addForms(forms, precision, experts.flatMap(partsOf))
  return forms
}

function addForms(forms: InputForm[], precision: Precision, matrices: readonly Matrix[]): void {
  for (const matrix of matrices) {
    if (matrix.kind === 'plain' || formIndex(forms, kernelMatrix(matrix), precision) >= 0) continue
    if (matrix.kind === 'blocks') forms.push({ block: matrix.block, precision })
    else forms.push({ block: null, bits: matrix.bits, group: matrix.group, precision })
  }
}

/** -1 for plain matrices, which take rows as they are. */
function formIndex(forms: readonly InputForm[], { block, bits, group }: KernelMatrix, precision: Precision): number {
  return forms.findIndex(
    form =>
      form.block === block &&
      form.precision === precision &&
      (form.block !== null || (form.bits === bits && form.group === group)),
  )
}

/** An expert's matrices, by their place in its slot. */
export function placeExpert(
  experts: ExpertLayout,
  forms: readonly InputForm[],
  precision: Precision,
  activation: Activation,
): PlacedFeedForward {
  const inSlot = (source: Matrix, bias: Vector | null): Weights => {
    const form = kernelMatrix(source)
    return {
      ...form,
      form: formIndex(forms, form, precision),
      bank: -1,
      weight: source.weight.offset,
      scales: source.kind === 'plain' ? 0 : source.scales.offset,
      biases: source.kind === 'quantized' ? source.biases.offset : 0,
      bias: bias ? bias.data.offset : 0,
      biasType: bias ? floatTypeCode[bias.type] : 0,
    }
  }
  return {
    gate: inSlot(experts.gate, experts.gateBias),
    up: inSlot(experts.up, experts.upBias),
    down: inSlot(experts.down, experts.downBias),
    activation,
  }
}

export function placeModel(
  plan: MemoryPlan,
  tensors: ModelTensors,
  experts: readonly ExpertLayout[], // of the layers that have some
  base: Pick<PlacedModel, 'config' | 'precision' | 'expertsPerToken' | 'chunkTokens' | 'scratch'>,
): PlacedModel {
  const places = new Places(plan, base.scratch.forms, base.precision)
  const { draftHead } = tensors
  const layers = allLayers(tensors).map(({ layer, inputNorm, postAttentionNorm, mixer, feedForward }): PlacedLayer => {
    return {
      inputNorm: places.vector(inputNorm),
      postAttentionNorm: places.vector(postAttentionNorm),
      stateBank: plan.stateBank[layer],
      mixer: mixer.kind === 'full_attention' ? places.attention(mixer) : places.delta(mixer),
      feedForward:
        feedForward.kind === 'moe'
          ? places.moe(feedForward, experts[base.config.expertLayers.indexOf(layer)])
          : places.dense(feedForward),
    }
  })
  return {
    ...base,
    layers,
    embed: places.matrix(tensors.embed),
    norm: places.vector(tensors.norm),
    lmHead: places.matrix(tensors.lmHead),
    draftHead: draftHead && {
      fc: places.matrix(draftHead.fc),
      embeddingNorm: places.vector(draftHead.embeddingNorm),
      hiddenNorm: places.vector(draftHead.hiddenNorm),
      norm: places.vector(draftHead.norm),
    },
    slots: plan.slots,
  }
}

/** Tensors by what the plan has made of them. */
class Places {
  constructor(
    private readonly plan: MemoryPlan,
    private readonly forms: readonly InputForm[],
    private readonly precision: Precision,
  ) {}

  vector(source: Vector | null): number {
    return source === null ? 0 : (this.plan.vectors.get(source)?.address as number)
  }

  matrix(source: Matrix, bias: Vector | null = null, precision = this.precision): Weights {
    const placed = this.plan.matrices.get(source) as PlacedMatrix
    const form = formIndex(this.forms, placed, precision)
    return { ...placed, form, bias: this.vector(bias), biasType: floatTypeCode.F32 }
  }

  attention(mixer: AttentionTensors): PlacedAttention {
    return {
      kind: mixer.kind,
      shape: mixer.shape,
      qProj: this.matrix(mixer.qProj, mixer.qBias),
      kProj: this.matrix(mixer.kProj, mixer.kBias),
      vProj: this.matrix(mixer.vProj, mixer.vBias),
      oProj: this.matrix(mixer.oProj, mixer.oBias),
      qNorm: this.vector(mixer.qNorm),
      kNorm: this.vector(mixer.kNorm),
      sinks: this.vector(mixer.sinks),
    }
  }

  delta(mixer: DeltaTensors): PlacedDelta {
    return {
      kind: mixer.kind,
      inProjQkv: this.matrix(mixer.inProjQkv),
      inProjZ: this.matrix(mixer.inProjZ),
      inProjA: this.matrix(mixer.inProjA, null, 'exact'),
      inProjB: this.matrix(mixer.inProjB, null, 'exact'),
      outProj: this.matrix(mixer.outProj),
      taps: this.vector(mixer.conv),
      aLog: this.vector(mixer.aLog),
      dtBias: this.vector(mixer.dtBias),
      norm: this.vector(mixer.norm),
    }
  }

  moe({ kind, shape, router, routerBias, selectionBias, shared }: MoeTensors, expert: ExpertLayout): PlacedMoe {
    return {
      kind,
      shape,
      router: this.matrix(router, routerBias, 'exact'),
      selectionBias: this.vector(selectionBias),
      shared: shared && {
        gate: shared.gate && this.matrix(shared.gate, null, 'exact'),
        expert: this.feedForward(shared.expert, shape.activation),
      },
      expert: placeExpert(expert, this.forms, this.precision, shape.activation),
    }
  }

  dense({ kind, shape, expert }: DenseTensors): PlacedDense {
    return { kind, expert: this.feedForward(expert, shape.activation) }
  }

  private feedForward({ gate, up, down }: FeedForward, activation: Activation): PlacedFeedForward {
    return { gate: this.matrix(gate), up: this.matrix(up), down: this.matrix(down), activation }
  }
}
