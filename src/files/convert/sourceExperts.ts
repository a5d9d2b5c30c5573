// The experts of a source one by one, whatever holds them: a tensor each, stacks, gate and up in one tensor, MXFP4 blocks.
import type { ModelConfig } from '../../model/config.js'
import { type Projection, projectionShape } from '../../model/expertLayout.js'
import type { Family } from '../../model/families/family.js'
import { layerPath } from '../../model/tensorPlan.js'
import type { SourceTensor } from './shardedModel.js'
import { checkShape, checkType, floatType, type SourceMatrix, type SourceVector, sliceOf } from './sourceMatrix.js'

const MXFP4_GROUP = 32

/** What a source's tensors are asked for. */
export interface TensorFinder {
  has(name: string): boolean
  find(name: string): SourceTensor
  /** Matrix `index` of the `count` that are stacked in the tensors of this name. */
  matrixIn(name: string, rows: number, cols: number, count: number, index: number): SourceMatrix
}

export class SourceExperts {
  constructor(
    private readonly tensors: TensorFinder,
    private readonly config: ModelConfig,
    private readonly family: Family,
  ) {}

  matrix(layer: number, expert: number, projection: Projection): SourceMatrix {
    const { tensors } = this
    const [rows, cols] = projectionShape(this.config, projection)
    const mlp = `${layerPath(this.config, layer)}mlp`
    const stacked = `${mlp}.switch_mlp.${projection}_proj`
    if (tensors.has(`${stacked}.weight`)) {
      return tensors.matrixIn(stacked, rows, cols, this.config.numExperts, expert)
    }
    const joined = `${mlp}.experts.${projection === 'down' ? 'down_proj' : 'gate_up_proj'}`
    if (tensors.has(`${joined}_blocks`)) return this.blocks(joined, expert, projection)
    if (tensors.has(joined)) return this.floats(joined, expert, projection)
    return tensors.matrixIn(`${mlp}.experts.${expert}.${projection}_proj`, rows, cols, 1, 0)
  }

  /** What is added to a projection's rows. */
  bias(layer: number, expert: number, projection: Projection): SourceVector {
    const { tensors } = this
    const { numExperts } = this.config
    const [length] = projectionShape(this.config, projection)
    const mlp = `${layerPath(this.config, layer)}mlp`
    const stacked = `${mlp}.switch_mlp.${projection}_proj.bias`
    const joined = `${mlp}.experts.${projection === 'down' ? 'down_proj' : 'gate_up_proj'}_bias`
    const isStacked = tensors.has(stacked)
    const tensor = tensors.find(isStacked ? stacked : joined)
    const parts = isStacked || projection === 'down' ? 1 : 2
    checkShape(tensor, [numExperts, parts * length])
    return {
      name: tensor.name,
      shape: [length],
      type: floatType(tensor),
      data: sliceOf(tensor, numExperts, expert),
      placeOf: parts === 2 ? this.rowOf(projection, length) : undefined,
    }
  }

  private floats(name: string, expert: number, projection: Projection): SourceMatrix {
    const tensor = this.tensors.find(name)
    const [rows, cols] = projectionShape(this.config, projection)
    const all = projection === 'down' ? rows : 2 * rows
    const isInputFirst = this.family.source.fusedExperts === 'alternating'
    const { numExperts } = this.config
    checkShape(tensor, isInputFirst ? [numExperts, cols, all] : [numExperts, all, cols])
    return {
      kind: 'plain',
      name: tensor.name,
      rows,
      cols,
      type: floatType(tensor),
      weight: sliceOf(tensor, numExperts, expert),
      rowOf: this.rowOf(projection, rows),
      ...(isInputFirst ? { inputFirst: all } : {}),
    }
  }

  private blocks(name: string, expert: number, projection: Projection): SourceMatrix {
    const { numExperts } = this.config
    const [rows, cols] = projectionShape(this.config, projection)
    const all = projection === 'down' ? rows : 2 * rows
    const blocks = this.tensors.find(`${name}_blocks`)
    const scales = this.tensors.find(`${name}_scales`)
    for (const tensor of [blocks, scales]) checkType(tensor, 'U8')
    checkShape(blocks, [numExperts, all, cols / MXFP4_GROUP, MXFP4_GROUP / 2])
    checkShape(scales, [numExperts, all, cols / MXFP4_GROUP])
    return {
      kind: 'blocks',
      block: 'mxfp4', // neighbours in a byte, as codes are packed here
      span: 0,
      name: blocks.name,
      rows,
      cols,
      weight: sliceOf(blocks, numExperts, expert),
      scales: sliceOf(scales, numExperts, expert),
      rowOf: this.rowOf(projection, rows),
    }
  }

  /** Where a row of gate or up lies among those of both. */
  private rowOf(projection: Projection, rows: number): ((row: number) => number) | undefined {
    if (projection === 'down') return undefined
    const second = projection === 'up' ? 1 : 0
    if (this.family.source.fusedExperts === 'alternating') return row => 2 * row + second
    return row => second * rows + row
  }
}
