// The model as compute workers know it: addresses instead of tensors. Plain data, so that it can be posted to workers.
import type { ModelConfig } from '../../model/config.js'
import { gatedMoe } from '../../model/gatedMoe.js'
import type { ExpertLayout, FeedForward, Matrix, ModelTensors, Vector } from '../../model/tensors.js'
import type { Precision } from '../backend.js'
import { type MemoryPlan, matrixForm, type PlacedMatrix, type Slot } from './memoryPlan.js'
import type { Form, Scratch } from './scratch.js'

/** A matrix with the index of its form among the model's (-1: plain, takes floats as they are). */
export interface Weights extends PlacedMatrix {
  readonly form: number
}

export interface PlacedFeedForward {
  readonly gate: Weights
  readonly up: Weights
  readonly down: Weights
}

interface CommonLayer {
  readonly inputNorm: number
  readonly postAttentionNorm: number
  readonly router: Weights
  readonly sharedExpertGate: Weights
  readonly shared: PlacedFeedForward
  readonly stateBank: number
}

export interface PlacedFullLayer extends CommonLayer {
  readonly kind: 'full_attention'
  readonly qProj: Weights
  readonly kProj: Weights
  readonly vProj: Weights
  readonly oProj: Weights
  readonly qNorm: number
  readonly kNorm: number
}

export interface PlacedLinearLayer extends CommonLayer {
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

export type PlacedLayer = PlacedFullLayer | PlacedLinearLayer

export interface PlacedModel {
  readonly config: ModelConfig
  readonly precision: Precision
  readonly expertsPerToken: number
  readonly chunkTokens: number
  readonly scratch: Scratch
  readonly layers: readonly PlacedLayer[]
  readonly embed: Weights
  readonly norm: number
  readonly lmHead: Weights
  /** Addresses relative to the slot; the bank is the slot's. */
  readonly expert: PlacedFeedForward
  readonly slots: readonly Slot[]
}

/**
 * The forms of input that a model's matrices take, each once. Routers and gates get float32 activations at any precision:
 * they are small, and a rounded score that picks another expert costs more than all other rounding together.
 */
export function modelForms(tensors: ModelTensors, experts: ExpertLayout, precision: Precision): Form[] {
  const forms: Form[] = []
  const add = (of: Precision, ...matrices: Matrix[]) => {
    for (const matrix of matrices) {
      if (matrix.kind === 'quantized' && formIndex(forms, matrix, of) < 0) {
        forms.push({ bits: matrix.bits, group: matrix.group, precision: of })
      }
    }
  }
  const feedForward = ({ gate, up, down }: FeedForward) => [gate, up, down]
  add(precision, tensors.lmHead, ...feedForward(experts))
  for (const layer of tensors.layers) {
    const { mixer } = layer
    const { router, sharedGate, sharedExpert } = gatedMoe(layer)
    add('exact', router, sharedGate)
    add(precision, ...feedForward(sharedExpert))
    if (mixer.kind === 'full_attention') add(precision, mixer.qProj, mixer.kProj, mixer.vProj, mixer.oProj)
    else {
      add('exact', mixer.inProjA, mixer.inProjB)
      add(precision, mixer.inProjQkv, mixer.inProjZ, mixer.outProj)
    }
  }
  return forms
}

function formIndex(forms: readonly Form[], of: { bits?: number; group?: number }, precision: Precision): number {
  return forms.findIndex(form => form.bits === of.bits && form.group === of.group && form.precision === precision)
}

/** An expert's matrices, by their place in its slot. */
export function placeExpert(experts: ExpertLayout, forms: readonly Form[], precision: Precision): PlacedFeedForward {
  const inSlot = (source: Matrix): Weights => {
    const form = matrixForm(source)
    const quantized = source.kind === 'quantized'
    return {
      ...form,
      form: formIndex(forms, form, precision),
      bank: -1,
      weight: source.weight.offset,
      scales: quantized ? source.scales.offset : 0,
      biases: quantized ? source.biases.offset : 0,
    }
  }
  return { gate: inSlot(experts.gate), up: inSlot(experts.up), down: inSlot(experts.down) }
}

/** The forms of an expert's matrices alone. */
export function expertForms(experts: ExpertLayout, precision: Precision): Form[] {
  const forms: Form[] = []
  for (const matrix of [experts.gate, experts.up, experts.down]) {
    if (matrix.kind !== 'quantized' || formIndex(forms, matrix, precision) >= 0) continue
    forms.push({ bits: matrix.bits, group: matrix.group, precision })
  }
  return forms
}

export function placeModel(
  plan: MemoryPlan,
  tensors: ModelTensors,
  experts: ExpertLayout,
  base: Pick<PlacedModel, 'config' | 'precision' | 'expertsPerToken' | 'chunkTokens' | 'scratch'>,
): PlacedModel {
  const { forms } = base.scratch
  const matrix = (source: Matrix, precision = base.precision): Weights => {
    const placed = plan.matrices.get(source) as PlacedMatrix
    return { ...placed, form: formIndex(forms, placed, precision) }
  }
  const vector = (source: Vector) => plan.vectors.get(source)?.address as number
  const feedForward = (source: FeedForward, place: (m: Matrix) => Weights): PlacedFeedForward => ({
    gate: place(source.gate),
    up: place(source.up),
    down: place(source.down),
  })
  const layers = tensors.layers.map((layer): PlacedLayer => {
    const { mixer } = layer
    const moe = gatedMoe(layer)
    const common: CommonLayer = {
      inputNorm: vector(layer.inputNorm),
      postAttentionNorm: vector(layer.postAttentionNorm),
      router: matrix(moe.router, 'exact'),
      sharedExpertGate: matrix(moe.sharedGate, 'exact'),
      shared: feedForward(moe.sharedExpert, part => matrix(part)),
      stateBank: plan.stateBank[layer.layer],
    }
    if (mixer.kind === 'full_attention') {
      return {
        ...common,
        kind: mixer.kind,
        qProj: matrix(mixer.qProj),
        kProj: matrix(mixer.kProj),
        vProj: matrix(mixer.vProj),
        oProj: matrix(mixer.oProj),
        qNorm: vector(mixer.qNorm!),
        kNorm: vector(mixer.kNorm!),
      }
    }
    return {
      ...common,
      kind: mixer.kind,
      inProjQkv: matrix(mixer.inProjQkv),
      inProjZ: matrix(mixer.inProjZ),
      inProjA: matrix(mixer.inProjA, 'exact'),
      inProjB: matrix(mixer.inProjB, 'exact'),
      outProj: matrix(mixer.outProj),
      taps: vector(mixer.conv),
      aLog: vector(mixer.aLog),
      dtBias: vector(mixer.dtBias),
      norm: vector(mixer.norm),
    }
  })
  return {
    ...base,
    layers,
    embed: matrix(tensors.embed),
    norm: vector(tensors.norm),
    lmHead: matrix(tensors.lmHead),
    expert: placeExpert(experts, forms, base.precision),
    slots: plan.slots,
  }
}
