// Where the matrices and vectors of a source lie, and in which form. Types, and the checks that several readers of headers
// share.
import { TensorError } from '../../base/errors.js'
import type { MatrixFormat } from '../../model/expertLayout.js'
import type { FloatType } from '../../model/floats.js'
import { FLOAT_BYTES } from '../../model/floats.js'
import type { ByteSource } from '../source.js'
import type { SourceTensor } from './shardedModel.js'

/** Some bytes of a source file. */
export interface Slice {
  readonly source: ByteSource
  readonly offset: number
  readonly size: number
}

interface MatrixPlace {
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly weight: Slice
  /** The row of the slices that is row `row` of the matrix; default the same. */
  readonly rowOf?: (row: number) => number
}

type Quantized = Extract<MatrixFormat, { kind: 'quantized' }>
type Blocks = Extract<MatrixFormat, { kind: 'blocks' }>
type Plain = Extract<MatrixFormat, { kind: 'plain' }>

/** A matrix [rows, cols] where it lies in the source. */
export type SourceMatrix =
  | (MatrixPlace & Quantized & { readonly scales: Slice; readonly biases: Slice })
  | (MatrixPlace & Plain & { readonly inputFirst?: number }) // width of a slice [cols, width] whose columns are the rows
  | (MatrixPlace & Blocks & { readonly scales: Slice })

export interface SourceVector {
  readonly name: string
  readonly shape: readonly number[]
  readonly type: FloatType
  readonly data: Slice
  /** The value of the slice that is value `i` of the vector; default the same. */
  readonly placeOf?: (i: number) => number
}

/** Part `index` of the `count` that a tensor is cut into. */
export function sliceOf(tensor: SourceTensor, count: number, index: number): Slice {
  const size = tensor.size / count
  return { source: tensor.source, offset: tensor.offset + index * size, size }
}

export function floatType(tensor: SourceTensor): FloatType {
  if (!(tensor.dtype in FLOAT_BYTES)) {
    throw new TensorError(tensor.name, `the dtype is ${tensor.dtype}, want BF16, F16 or F32`, tensor.source.name)
  }
  return tensor.dtype as FloatType
}

export function checkShape(tensor: SourceTensor, want: readonly number[]): void {
  if (tensor.shape.join() !== want.join()) {
    throw new TensorError(tensor.name, `the shape is [${tensor.shape}], want [${want}]`, tensor.source.name)
  }
}

export function checkType(tensor: SourceTensor, want: string): void {
  if (tensor.dtype === want) return
  throw new TensorError(tensor.name, `the dtype is ${tensor.dtype}, want ${want}`, tensor.source.name)
}
