// Products of rows of a matrix with rows of activations: which kernel computes them, and what it is told. Kernels take numbers
// by position, so that this file is the only one that calls them for products.
import { BLOCK_FORMATS, blockShift, hasLaneSums, isNibbles } from '../../../model/blockFormats.js'
import type { Kernels } from '../kernels.js'
import type { Slot } from '../memory/bankLayout.js'
import type { Weights } from '../memory/placedModel.js'
import type { InputForm, Rows, Stage } from '../memory/scratch.js'

/** What kernels are told of a block format, made once. */
export const BLOCKS = Object.fromEntries(
  [...BLOCK_FORMATS.values()].map(format => {
    const { name, kernel, bits, group } = format
    return [
      name,
      { kernel, bits, group, shift: blockShift(format), isLanes: hasLaneSums(format), isNibbles: isNibbles(format) },
    ]
  }),
)

/** Rows from the first one on: one after the other, or those that a list of row numbers names, counted from the first. */
interface Picked {
  readonly first: number
  readonly list: number // address of the list; 0: none
}

export interface ProductInput extends Picked {
  readonly stage: Stage
}

export interface ProductOutput extends Picked {
  readonly rows: Rows
}

export class Products {
  constructor(
    private readonly kernels: readonly Kernels[], // per bank
    private readonly forms: readonly InputForm[],
    private readonly scratch: number, // of this worker, in every bank
  ) {}

  /**
   * Rows [begin, end) of a matrix and their bias over `tokens` inputs. Input, matrix and output are in one bank: that of the record
   * which the matrix is part of, or for a resident one (null) its own.
   */
  compute(
    weights: Weights,
    record: Slot | null,
    input: ProductInput,
    output: ProductOutput,
    tokens: number,
    begin: number,
    end: number,
  ): void {
    const kernels = this.kernels[record === null ? weights.bank : record.bank]
    const base = record === null ? 0 : record.address
    const { rows, list } = output
    const target = rows.address + output.first * rows.stride
    this.multiply(kernels, weights, base, input, target, output, tokens, begin, end)
    if (weights.bias === 0) return
    kernels.addBias(target, rows.stride, list, base + weights.bias, weights.biasType, tokens, begin, end)
  }

  /** One call of the right kernel. */
  private multiply(
    kernels: Kernels,
    weights: Weights,
    base: number,
    { stage, first, list }: ProductInput,
    target: number,
    output: ProductOutput,
    tokens: number,
    begin: number,
    end: number,
  ): void {
    const { cols, type, form } = weights
    const { stride } = output.rows
    const outList = output.list
    const weight = base + weights.weight
    const { scratch } = this
    if (form < 0) {
      const { x } = stage
      const from = x.address + first * x.stride
      // biome-ignore format: as kernels.ts has it
      kernels.matmulPlain(target, stride, outList, weight, type, cols, begin, end, from, x.stride, list, tokens, scratch)
      return
    }
    const of = this.forms[form]
    const scales = base + weights.scales
    if (of.block !== null) {
      const { kernel, isNibbles } = BLOCKS[of.block]
      const isExact = of.precision === 'exact'
      const records = isExact && !isNibbles ? stage.x : stage.records[form]
      const from = records.address + first * records.stride
      const matmul = isExact ? kernels.matmulBlocksExact : kernels.matmulBlocks
      // biome-ignore format: as kernels.ts has it
      matmul(target, stride, outList, weight, scales, kernel, weights.span, cols, begin, end, from, records.stride, list, tokens, scratch)
      return
    }
    const { bits, group, precision } = of
    const records = stage.records[form]
    const from = records.address + first * records.stride
    const biases = base + weights.biases
    const matmul = precision === 'exact' ? kernels.matmulExact : kernels.matmulFast
    // biome-ignore format: as kernels.ts has it
    matmul(target, stride, outList, weight, scales, biases, type, bits, group, cols, begin, end, from, records.stride, list, tokens, scratch)
  }
}
