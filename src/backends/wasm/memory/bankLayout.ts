// Where everything of an opened model lies, decided before a byte is allocated: which bank and address each tensor and
// each expert slot gets, and in which bank a layer's sequence state grows. Pure: sizes in, addresses out.
//
// Every bank starts with the same scratch region, so an activation has one address in all of them and moving it to the
// bank where a matrix lies is a copy between equal ranges. Bank 0 is home: small tensors, activations of record, and as
// many matrices as leave room for sequence state. Further matrices and then the slots fill banks of their own.
import { OutOfMemoryError } from '../../../base/errors.js'
import type { BlockName, BlockSpan } from '../../../model/blockFormats.js'
import type { ModelConfig } from '../../../model/config.js'
import { allLayerKinds } from '../../../model/sizes.js'
import { allLayers, layerMatrices, matrixParts } from '../../../model/tensorParts.js'
import type { LayerTensors, Matrix, ModelTensors, QuantBits, QuantGroup, Vector } from '../../../model/tensors.js'
import { floatTypeCode } from '../kernels.js'
import { alignUp } from './bank.js'

const TENSOR_ALIGN = 64
export const SLOT_ALIGN = 4096 // direct reads need it

/** What a kernel needs to know of a matrix besides where it lies. Bits and group are 0 where weights are not affine. */
export interface KernelMatrix {
  readonly rows: number
  readonly cols: number
  readonly bits: QuantBits | 0
  readonly group: QuantGroup | 0
  readonly type: number // floatTypeCode of a plain matrix's weights, of a quantized one's scales
  readonly block: BlockName | null
  readonly span: BlockSpan
}

export interface PlacedMatrix extends KernelMatrix {
  readonly bank: number
  readonly weight: number
  readonly scales: number
  readonly biases: number
}

/** A small tensor, widened to F32. Readable up to a multiple of 4 floats. */
export interface PlacedVector {
  readonly bank: number
  readonly address: number
}

export interface Slot {
  readonly bank: number
  readonly address: number
}

/** Bytes of model_weights.bin that go to a bank as they are. */
export interface LoadRange {
  readonly offset: number
  readonly size: number
  readonly bank: number
  readonly address: number
}

export interface MemoryPlan {
  readonly bankFloors: readonly number[] // bytes fixed at open, per bank
  readonly matrices: ReadonlyMap<Matrix, PlacedMatrix>
  readonly vectors: ReadonlyMap<Vector, PlacedVector>
  readonly loads: readonly LoadRange[]
  readonly slots: readonly Slot[]
  readonly slotBytes: number // bytes from one slot to the next
  readonly stateBank: readonly number[] // per layer
  readonly residentBytes: number
}

export interface PlanRequest {
  readonly config: ModelConfig
  readonly tensors: ModelTensors
  readonly expertSize: number
  readonly slotCount: number
  readonly scratchBytes: number
  readonly bankLimit: number
  /** The most sequence state that should ever fit, all sequences together. */
  readonly stateBytes: number
}

export function planMemory(request: PlanRequest): MemoryPlan {
  const { tensors, bankLimit } = request
  const floors: number[] = []
  const scratchEnd = alignUp(request.scratchBytes, TENSOR_ALIGN)
  const openBank = () => floors.push(scratchEnd) - 1
  const home = openBank()

  const vectors = new Map<Vector, PlacedVector>()
  const placeVector = (vector: Vector, bank: number) => {
    vectors.set(vector, { bank, address: take(floors, bank, alignUp(vector.length * 4, TENSOR_ALIGN)) })
  }
  const layers = allLayers(tensors)
  for (const vector of [tensors.norm, ...headVectors(tensors), ...layers.flatMap(homeVectors)])
    placeVector(vector, home)
  const biasOf = new Map(layers.flatMap(biases))

  // Half the home bank stays free for sequence state; what no longer fits goes to banks that may be filled.
  const homeShare = Math.max(floors[home], Math.floor(bankLimit / 2))
  const matrices = new Map<Matrix, PlacedMatrix>()
  const byOffset = new Map<number, PlacedMatrix>() // a tied lm_head is the embedding
  const loads: LoadRange[] = []
  let current = home
  for (const matrix of allMatrices(tensors)) {
    const known = byOffset.get(matrix.weight.offset)
    if (known) {
      matrices.set(matrix, known)
      continue
    }
    const bias = biasOf.get(matrix)
    const bytes = matrixBytes(matrix) + (bias ? bias.length * 4 + TENSOR_ALIGN : 0)
    if (floors[current] + bytes > (current === home ? homeShare : bankLimit)) current = openBank()
    if (floors[current] + bytes > bankLimit) {
      throw new OutOfMemoryError(matrix.name, bytes, `a memory holds at most ${bankLimit} bytes`)
    }
    const placed = place(matrix, current, floors, loads)
    byOffset.set(matrix.weight.offset, placed)
    matrices.set(matrix, placed)
    if (bias) placeVector(bias, current)
  }

  const slotBytes = alignUp(request.expertSize, SLOT_ALIGN)
  const slots: Slot[] = []
  let slotBank = current === home ? -1 : current
  while (slots.length < request.slotCount) {
    const left = request.slotCount - slots.length
    // A few slots stay beside the weights: small models live in one bank and copy nothing between banks.
    if (slotBank < 0) slotBank = floors[home] + left * slotBytes + SLOT_ALIGN <= homeShare ? home : openBank()
    floors[slotBank] = alignUp(floors[slotBank], SLOT_ALIGN)
    const fit = Math.min(left, Math.floor((bankLimit - floors[slotBank]) / slotBytes))
    if (fit === 0 && floors[slotBank] === alignUp(scratchEnd, SLOT_ALIGN)) {
      throw new OutOfMemoryError('expert', slotBytes, `a memory holds at most ${bankLimit} bytes`)
    }
    for (let i = 0; i < fit; i++) slots.push({ bank: slotBank, address: floors[slotBank] + i * slotBytes })
    floors[slotBank] += fit * slotBytes
    if (slots.length < request.slotCount) slotBank = openBank()
  }

  const stateBank = planState(request, floors, home, openBank)
  for (const layer of layers) {
    for (const vector of stateVectors(layer)) placeVector(vector, stateBank[layer.layer])
  }
  const residentBytes =
    loads.reduce((sum, load) => sum + load.size, 0) + [...vectors.keys()].reduce((sum, v) => sum + v.length * 4, 0)

  return {
    bankFloors: floors,
    matrices,
    vectors,
    loads: joinLoads(loads),
    slots,
    slotBytes,
    stateBank,
    residentBytes,
  }
}

/** Layers' state goes home while it fits there, and round robin over more banks where long contexts need them. */
function planState(request: PlanRequest, floors: number[], home: number, openBank: () => number): number[] {
  const banks = [home]
  let room = request.bankLimit - floors[home]
  while (room < request.stateBytes && banks.length < request.config.numLayers) {
    const bank = openBank()
    banks.push(bank)
    room += request.bankLimit - floors[bank]
  }
  // One kind at a time: pages and recurrent sets are both spread evenly.
  const counts = new Map<string, number>()
  return allLayerKinds(request.config).map(kind => {
    const n = counts.get(kind) ?? 0
    counts.set(kind, n + 1)
    return banks[n % banks.length]
  })
}

function take(floors: number[], bank: number, bytes: number): number {
  const address = alignUp(floors[bank], TENSOR_ALIGN)
  floors[bank] = address + bytes
  return address
}

function place(matrix: Matrix, bank: number, floors: number[], loads: LoadRange[]): PlacedMatrix {
  const load = (range: { offset: number; size: number }) => {
    const address = take(floors, bank, range.size)
    loads.push({ ...range, bank, address })
    return address
  }
  const weight = load(matrix.weight)
  return {
    bank,
    ...kernelMatrix(matrix),
    weight,
    scales: matrix.kind === 'plain' ? 0 : load(matrix.scales),
    biases: matrix.kind === 'quantized' ? load(matrix.biases) : 0,
  }
}

export function kernelMatrix(matrix: Matrix): KernelMatrix {
  const { rows, cols } = matrix
  if (matrix.kind === 'blocks') {
    return { rows, cols, bits: 0, group: 0, type: 0, block: matrix.block, span: matrix.span }
  }
  const type = floatTypeCode[matrix.kind === 'plain' ? matrix.type : matrix.scaleType]
  const { bits, group } = matrix.kind === 'plain' ? { bits: 0 as const, group: 0 as const } : matrix
  return { rows, cols, bits, group, type, block: null, span: 0 }
}

function matrixBytes(matrix: Matrix): number {
  return matrixParts(matrix).reduce((sum, part) => sum + part.size + TENSOR_ALIGN, 0)
}

/** Neighbours in the file that are neighbours in a bank become one read. */
function joinLoads(loads: readonly LoadRange[]): LoadRange[] {
  const sorted = [...loads].sort((a, b) => a.bank - b.bank || a.address - b.address)
  const joined: LoadRange[] = []
  for (const load of sorted) {
    const last = joined.at(-1)
    const gap = last ? load.address - (last.address + last.size) : 0
    const follows = last && last.bank === load.bank && load.offset === last.offset + last.size + gap
    if (last && follows) joined[joined.length - 1] = { ...last, size: last.size + gap + load.size }
    else joined.push(load)
  }
  return joined
}

/** Vectors that work on activations of record. */
function homeVectors({ inputNorm, postAttentionNorm, mixer, feedForward }: LayerTensors): Vector[] {
  const vectors = [inputNorm, postAttentionNorm]
  if (mixer.kind === 'full_attention') vectors.push(...present(mixer.qNorm, mixer.kNorm))
  if (feedForward.kind === 'moe') vectors.push(...present(feedForward.selectionBias))
  return vectors
}

function headVectors({ draftHead: head }: ModelTensors): Vector[] {
  return head === null ? [] : [head.embeddingNorm, head.hiddenNorm, head.norm]
}

/** Vectors of kernels that run where the sequence state is. */
function stateVectors({ mixer }: LayerTensors): Vector[] {
  if (mixer.kind === 'full_attention') return present(mixer.sinks)
  return [mixer.conv, mixer.aLog, mixer.dtBias, mixer.norm]
}

/** Biases, which go where their matrices are. */
function biases({ mixer, feedForward }: LayerTensors): [Matrix, Vector][] {
  const pairs: [Matrix, Vector | null][] = []
  if (mixer.kind === 'full_attention') {
    const { qProj, kProj, vProj, oProj, qBias, kBias, vBias, oBias } = mixer
    pairs.push([qProj, qBias], [kProj, kBias], [vProj, vBias], [oProj, oBias])
  }
  if (feedForward.kind === 'moe') pairs.push([feedForward.router, feedForward.routerBias])
  return pairs.filter((pair): pair is [Matrix, Vector] => pair[1] !== null)
}

function present(...vectors: (Vector | null)[]): Vector[] {
  return vectors.filter(vector => vector !== null)
}

/** In file order, so that neighbours can be read together. */
function allMatrices(tensors: ModelTensors): Matrix[] {
  const ofHead = tensors.draftHead === null ? [] : [tensors.draftHead.fc]
  const all = [tensors.embed, tensors.lmHead, ...ofHead, ...allLayers(tensors).flatMap(layerMatrices)]
  return all.sort((a, b) => a.weight.offset - b.weight.offset)
}
