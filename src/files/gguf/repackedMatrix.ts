// One matrix of a GGUF file as the packed folder would have it: rows are read, brought into the wanted order, and re-laid
// block by block. Memory stays at the rows that are asked for.
import { TensorError } from '../../base/errors.js'
import { type BlockName, type BlockSpan, blockFormat, blockSizes, isBlockSpan } from '../../model/blockFormats.js'
import type { FloatType } from '../../model/floats.js'
import { FLOAT_BYTES, float32ToFloat16, widenFloats } from '../../model/floats.js'
import { allocateCodes, BLOCK_FORMS, type BlockForm, unpackBlocks, valuesOfCodes } from './blockValues.js'
import type { PlacedTensor } from './ggufFile.js'
import { allocateAffine, RELAY_GROUP, relay } from './repackAffine.js'
import { blockNameOf, relayBlocks } from './repackBlocks.js'

export type MatrixTarget =
  | { readonly kind: 'affine'; readonly bits: 4 | 8 } // groups of 32, F16 scales
  | { readonly kind: 'blocks'; readonly block: BlockName; readonly span: BlockSpan }
  | { readonly kind: 'plain'; readonly type: FloatType }

export interface RelaidRows {
  readonly weight: Uint8Array
  readonly scales: Uint8Array // empty for plain matrices
  readonly biases: Uint8Array // of affine ones
}

export interface MatrixOrder {
  /** The file's row of a row of the matrix; absent: the same. */
  readonly rowOf?: (row: number) => number
  /** Columns go by blocks of equal width: which of the file's comes n-th. */
  readonly columnBlocks?: readonly number[]
}

const NONE = new Uint8Array(0)

/** The form that holds a type's values. Refuses types that are not known here by name. */
export function targetOf(tensor: PlacedTensor, cols: number, { columnBlocks }: MatrixOrder = {}): MatrixTarget {
  const { name } = tensor.type
  if (isFloat(name)) return { kind: 'plain', type: name }
  const block = blockNameOf(name)
  if (block !== undefined) {
    // Where columns move, spans move with them.
    const width = columnBlocks === undefined ? cols : cols / columnBlocks.length
    const format = blockFormat(block)
    const span = ([0, 256, 128] as const).find(each => isBlockSpan(format, each, width))
    return span === undefined ? { kind: 'plain', type: 'F32' } : { kind: 'blocks', block, span }
  }
  if (BLOCK_FORMS.has(name)) return { kind: 'affine', bits: name.startsWith('Q4') ? 4 : 8 }
  const known = [...Object.keys(FLOAT_BYTES), ...BLOCK_FORMS.keys()].join(', ')
  throw new TensorError(
    tensor.name,
    `has the type ${name}, which is not supported; want one of ${known}`,
    tensor.source.name,
  )
}

export class RelaidMatrix {
  constructor(
    readonly tensor: PlacedTensor,
    readonly rows: number,
    readonly cols: number,
    readonly target: MatrixTarget,
    private readonly order: MatrixOrder = {},
  ) {
    const { columnBlocks } = order
    const width = columnBlocks === undefined ? cols : cols / columnBlocks.length
    if (target.kind === 'affine' && width % RELAY_GROUP !== 0) {
      const detail = `heads of ${width} columns are cut by groups of ${RELAY_GROUP}, so that their order cannot be undone`
      throw new TensorError(tensor.name, detail, tensor.source.name)
    }
  }

  /** Bytes of a row in each part. */
  get rowBytes(): { readonly weight: number; readonly scales: number; readonly biases: number } {
    const { target, cols } = this
    if (target.kind === 'plain') return { weight: cols * FLOAT_BYTES[target.type], scales: 0, biases: 0 }
    if (target.kind === 'blocks') return { ...blockSizes(1, cols, blockFormat(target.block), target.span), biases: 0 }
    const scales = (cols / RELAY_GROUP) * 2
    return { weight: (cols * target.bits) / 8, scales, biases: scales }
  }

  async read(row: number, count: number, signal?: AbortSignal): Promise<RelaidRows> {
    const bytes = await this.readStored(row, count, signal)
    const rows = this.relaid(bytes, row, count)
    const { columnBlocks } = this.order
    if (columnBlocks === undefined) return rows
    return {
      weight: reorder(rows.weight, count, columnBlocks),
      scales: reorder(rows.scales, count, columnBlocks),
      biases: reorder(rows.biases, count, columnBlocks),
    }
  }

  /** The values of rows as the file means them. */
  async values(row: number, count: number): Promise<Float32Array> {
    const values = this.widen(await this.readStored(row, count), count)
    const { columnBlocks } = this.order
    if (columnBlocks === undefined) return values
    return new Float32Array(reorder(new Uint8Array(values.buffer), count, columnBlocks).buffer)
  }

  /** Rows as they are stored, in the matrix's order. */
  private async readStored(row: number, count: number, signal?: AbortSignal): Promise<Uint8Array> {
    const { source, offset, type } = this.tensor
    const rowBytes = (this.cols / type.blockValues) * type.blockBytes
    const rowOf = this.order.rowOf ?? ((each: number) => each)
    const bytes = new Uint8Array(count * rowBytes)
    for (let done = 0; done < count; ) {
      const first = rowOf(row + done)
      let run = 1
      while (done + run < count && rowOf(row + done + run) === first + run) run++
      await source.read(offset + first * rowBytes, bytes.subarray(done * rowBytes, (done + run) * rowBytes), signal)
      done += run
    }
    return bytes
  }

  private relaid(bytes: Uint8Array, row: number, count: number): RelaidRows {
    const { target, cols } = this
    if (target.kind === 'plain') return this.plainRows(bytes, count, target.type)
    const { type } = this.tensor
    const form = BLOCK_FORMS.get(type.name)!
    if (target.kind === 'affine') return this.affineRows(bytes, row, count, form, target.bits)
    return { ...relayBlocks(form, type, bytes, cols, target.block, target.span), biases: NONE }
  }

  private plainRows(bytes: Uint8Array, count: number, type: FloatType): RelaidRows {
    if (this.tensor.type.name === type) return { weight: bytes, scales: NONE, biases: NONE }
    const values = this.widen(bytes, count)
    const weight = type === 'F16' ? Uint16Array.from(values, float32ToFloat16) : values
    return { weight: new Uint8Array(weight.buffer), scales: NONE, biases: NONE }
  }

  private widen(bytes: Uint8Array, count: number): Float32Array {
    const values = new Float32Array(count * this.cols)
    const { name } = this.tensor.type
    const form = BLOCK_FORMS.get(name)
    if (form === undefined) {
      widenFloats(name as FloatType, bytes, values)
      return values
    }
    const codes = allocateCodes(values.length, form.group)
    unpackBlocks(form, this.tensor.type, bytes, codes)
    valuesOfCodes(form, codes, values)
    return values
  }

  private affineRows(bytes: Uint8Array, row: number, count: number, form: BlockForm, bits: 4 | 8): RelaidRows {
    const values = count * this.cols
    const codes = allocateCodes(values, form.group)
    unpackBlocks(form, this.tensor.type, bytes, codes)
    const out = allocateAffine(values, bits)
    const lost = relay(form, codes, bits, out)
    if (lost >= 0) {
      const at = row + Math.floor((lost * RELAY_GROUP) / this.cols)
      throw new TensorError(this.tensor.name, `row ${at} has a scale past what F16 holds`, this.tensor.source.name)
    }
    return {
      weight: new Uint8Array(out.weight.buffer),
      scales: new Uint8Array(out.scales.buffer),
      biases: new Uint8Array(out.biases.buffer),
    }
  }
}

function reorder(bytes: Uint8Array, rows: number, blocks: readonly number[]): Uint8Array {
  const out = new Uint8Array(bytes.byteLength)
  const size = bytes.byteLength / rows / blocks.length
  for (let row = 0; row < rows; row++) {
    const start = row * blocks.length
    for (const [to, from] of blocks.entries()) {
      out.set(bytes.subarray((start + from) * size, (start + from + 1) * size), (start + to) * size)
    }
  }
  return out
}

function isFloat(name: string): name is FloatType {
  return name in FLOAT_BYTES
}
