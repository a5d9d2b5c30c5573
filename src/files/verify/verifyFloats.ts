// Floats in the files of a model: the one thing that can be seen to be wrong without checksums. A NaN or an infinity among
// them would poison every token.
import { FormatError } from '../../base/errors.js'
import { PROJECTIONS } from '../../model/expertLayout.js'
import { FLOAT_BYTES, type FloatType, findNonFinite } from '../../model/floats.js'
import { floatRanges, layerMatrices, layerVectors } from '../../model/tensorParts.js'
import type { Matrix, Vector } from '../../model/tensors.js'
import type { PackedModel } from '../packed/packedModel.js'
import type { ByteSource } from '../source.js'

const PIECE_BYTES = 4 * 2 ** 20

/** Floats of one tensor, where they lie. */
export interface Floats {
  readonly source: ByteSource
  readonly offset: number
  readonly size: number
  readonly type: FloatType
  readonly what: string // 'scales of model.layers.0.mlp.gate'
}

/** What is wrong with the floats of one file, or null: the first that are not finite, and how many others. */
export async function lookAtFloats(
  all: Iterable<Floats>,
  advance: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<FormatError | null> {
  let first: { readonly file: string; readonly detail: string } | null = null
  let others = 0
  for (const floats of all) {
    signal?.throwIfAborted()
    const detail = await firstBroken(floats, signal)
    advance(floats.size)
    if (detail !== null && first !== null) others++
    else if (detail !== null) first = { file: floats.source.name, detail }
  }
  if (first === null) return null
  const more = others === 0 ? '' : `, and ${others} other ${others === 1 ? 'tensor does' : 'tensors do'}`
  return new FormatError('NON_FINITE', first.file, `${first.detail}${more}`)
}

async function firstBroken(floats: Floats, signal?: AbortSignal): Promise<string | null> {
  const { source, type, what } = floats
  const piece = new Uint8Array(Math.min(PIECE_BYTES, floats.size))
  for (let at = 0; at < floats.size; at += piece.length) {
    const bytes = piece.subarray(0, Math.min(piece.length, floats.size - at))
    await source.read(floats.offset + at, bytes, signal)
    const index = findNonFinite(type, bytes)
    if (index < 0) continue
    const offset = floats.offset + at + index * FLOAT_BYTES[type]
    return `${what} hold NaN or infinity, at byte ${offset}`
  }
  return null
}

export function* residentFloats({ tensors, weights: source }: PackedModel): Generator<Floats> {
  yield* matrixFloats(tensors.embed, source, 0)
  for (const layer of tensors.layers) {
    for (const matrix of layerMatrices(layer)) yield* matrixFloats(matrix, source, 0)
    for (const vector of layerVectors(layer)) yield vectorFloats(vector, source)
  }
  const { norm, lmHead, embed } = tensors
  yield vectorFloats(norm, source)
  if (lmHead.weight.offset !== embed.weight.offset) yield* matrixFloats(lmHead, source, 0)
}

/** `place`: among the layers with experts. */
export function* expertFloats({ experts, config }: PackedModel, place: number): Generator<Floats> {
  const { layouts, files } = experts
  const layout = layouts[place]
  for (let expert = 0; expert < config.numExperts; expert++) {
    for (const projection of PROJECTIONS) {
      yield* matrixFloats(layout[projection], files[place], expert * layout.expertSize, `expert ${expert}, `)
    }
    for (const bias of [layout.gateBias, layout.upBias, layout.downBias]) {
      if (bias === null) continue
      const floats = vectorFloats(bias, files[place])
      yield { ...floats, offset: expert * layout.expertSize + floats.offset, what: `expert ${expert}, ${floats.what}` }
    }
  }
}

function* matrixFloats(matrix: Matrix, source: ByteSource, base: number, owner = ''): Generator<Floats> {
  for (const { kind, type, offset, size } of floatRanges(matrix)) {
    yield { source, type, offset: base + offset, size, what: `${kind} of ${owner}${matrix.name}` }
  }
}

function vectorFloats({ name, type, data }: Vector, source: ByteSource): Floats {
  return { source, type, ...data, what: `values of ${name}` }
}
