// Writes the two kinds of large files of a packed folder, each from its start to its end: model_weights.bin, and the
// experts of one layer.
import { TensorError } from '../../base/errors.js'
import { hasExpertBiases, PROJECTIONS } from '../../model/expertLayout.js'
import { FLOAT_BYTES, findNonFinite, widenFloats } from '../../model/floats.js'
import type { OutputFile } from './outputFolder.js'
import type { ExpertSetPlan, PackingPlan, ResidentItem } from './packingPlan.js'
import { type PackScratch, packMatrix } from './packMatrix.js'
import type { SourceVector } from './sourceMatrix.js'
import type { SourceModel } from './sourceModel.js'

export interface WriteContext {
  readonly file: OutputFile
  readonly scratch: PackScratch
  readonly signal?: AbortSignal
  /** So many bytes more are written. */
  advance(bytes: number): void
}

/** Every non-expert tensor, each at its place in the plan. */
export async function writeResident(model: SourceModel, plan: PackingPlan, context: WriteContext): Promise<void> {
  let end = 0
  const append = async (bytes: Uint8Array) => {
    await context.file.append(bytes)
    context.advance(bytes.byteLength)
    end += bytes.byteLength
  }
  const startTensor = async (name: string) => {
    const padding = plan.stored.get(name)!.offset - end
    if (padding > 0) await append(new Uint8Array(padding))
  }
  for (const item of plan.items) {
    const { name } = item.spec
    if (item.kind === 'vector') {
      await startTensor(name)
      await append(await packVector(model, item))
      continue
    }
    await startTensor(`${name}.weight`)
    const scales: Uint8Array[] = []
    const biases: Uint8Array[] = []
    for await (const block of packMatrix(model.matrix(item.spec), item.format, context.scratch, context.signal)) {
      await append(block.weight)
      scales.push(block.scales.slice())
      biases.push(block.biases.slice())
    }
    if (item.format.kind === 'plain') continue
    await startTensor(`${name}.scales`)
    for (const bytes of scales) await append(bytes)
    if (item.format.kind === 'blocks') continue
    await startTensor(`${name}.biases`)
    for (const bytes of biases) await append(bytes)
  }
}

/** All experts of a layer, one record each. */
export async function writeExperts(
  model: SourceModel,
  layer: number,
  set: ExpertSetPlan,
  context: WriteContext,
): Promise<void> {
  // Two records: one is written while the next is packed.
  let record = new Uint8Array(set.expertSize)
  let other = new Uint8Array(set.expertSize)
  let writing: Promise<void> = Promise.resolve()
  try {
    for (let expert = 0; expert < model.config.numExperts; expert++) {
      await packExpert(model, layer, expert, set, record, context)
      await writing
      const full = record
      writing = context.file.append(full)
      writing.catch(() => {}) // seen where it is awaited
      context.advance(full.byteLength)
      record = other
      other = full
    }
  } finally {
    await writing
  }
}

async function packExpert(
  model: SourceModel,
  layer: number,
  expert: number,
  set: ExpertSetPlan,
  record: Uint8Array, // [expertSize]; bytes past the last part stay zero
  context: WriteContext,
): Promise<void> {
  const place = set.tables.length === 1 ? 0 : model.config.expertLayers.indexOf(layer)
  for (const projection of PROJECTIONS) {
    const offsets = { weight: 0, scales: 0, biases: 0, bias: 0 }
    for (const part of set.tables[place]) if (part.projection === projection) offsets[part.kind] = part.offset
    const source = model.expert(layer, expert, projection)
    for await (const block of packMatrix(source, set.formats[place][projection], context.scratch, context.signal)) {
      for (const kind of ['weight', 'scales', 'biases'] as const) {
        record.set(block[kind], offsets[kind])
        offsets[kind] += block[kind].byteLength
      }
    }
    if (!hasExpertBiases(model.config)) continue
    const bias = await readFloats(model.expertBias(layer, expert, projection))
    record.set(new Uint8Array(bias.buffer), offsets.bias)
  }
}

async function packVector(
  model: SourceModel,
  item: Extract<ResidentItem, { kind: 'vector' }>,
): Promise<Uint8Array<ArrayBuffer>> {
  const vector = model.vector(item.spec)
  if (item.type === vector.type && !item.addOne) return readBytes(vector)
  const values = await readFloats(vector)
  if (item.addOne) for (let i = 0; i < values.length; i++) values[i] += 1
  return new Uint8Array(values.buffer)
}

async function readBytes({ data, type, name }: SourceVector): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(data.size)
  await data.source.read(data.offset, bytes)
  if (findNonFinite(type, bytes) >= 0) throw new TensorError(name, 'holds NaN or infinity', data.source.name)
  return bytes
}

async function readFloats(vector: SourceVector): Promise<Float32Array<ArrayBuffer>> {
  const { type, shape, placeOf } = vector
  const bytes = await readBytes(vector)
  const values = new Float32Array(bytes.byteLength / FLOAT_BYTES[type])
  widenFloats(type, bytes, values)
  return placeOf === undefined ? values : Float32Array.from({ length: shape[0] }, (_, i) => values[placeOf(i)])
}
