// The experts of one layer for any number of tokens: pairs sorted by expert, gate and up, activation, down → expertRows.
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { type Op, sequence } from '../../../gpu/device/op.js'
import type { SlotLayout, SlotMatrix } from '../../../gpu/memory/slotLayout.js'
import type { PoolBuffer } from '../../../gpu/memory/slotPools.js'
import type { ModelConfig } from '../../../model/config.js'
import type { Activation } from '../../../model/layers.js'
import { swiGluOp } from '../../../ops/activation/swiGlu.gpu.js'
import { halfGluOp, halfRowsOp } from '../../../ops/matmul/halfRows.gpu.js'
import { groupedMatMulOp } from '../../../ops/matmul/matMul.gpu.js'
import { quantizeOp } from '../../../ops/matmul/quantize.gpu.js'
import { groupTokensOp, maxTiles, mostPlaces, pairsAt } from '../../../ops/moe/groupTokens.gpu.js'
import {
  areForTensors,
  EXPERT_TILES,
  type ExpertTile,
  expertTile,
  tensorExpertsOp,
} from '../../../ops/moe/tensorExperts.gpu.js'
import type { Workspace } from '../memory/workspace.js'

export interface PromptExperts {
  readonly gpu: GpuContext
  readonly config: ModelConfig
  readonly space: Workspace
  readonly layout: SlotLayout
  readonly pool: PoolBuffer
  readonly place: number // of the layer, among those with experts
  readonly activation: Activation
  readonly hasHalves: boolean // the rows are there as half floats already
}

/** Every expert of `table` applied to its tokens. */
export async function promptExpertsOp(parts: PromptExperts, table: GPUBuffer): Promise<Op> {
  if (!areForTensors(parts.gpu, parts.layout)) return all(byProducts(parts, table))
  const { shape } = parts.space
  const ways = await Promise.all(
    EXPERT_TILES.map(async tile => ({ tile, op: await all(onTensors(parts, table, tile)) })),
  )
  return (recorder, size) => {
    const wanted = expertTile(shape, size.tokens)
    ways.find(({ tile }) => tile === wanted)?.op(recorder, size)
  }
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}

const segment = (matrix: SlotMatrix, out: number) => ({ ...matrix, out })

/** Rows of pairs stay in the order of their list, which `combine` is told. */
function onTensors(parts: PromptExperts, table: GPUBuffer, tile: ExpertTile) {
  const { gpu, config, space, layout, pool, place, activation, hasHalves } = parts
  const { shape, step, groups, choice, normed, expertGateUp, expertAct, expertRows } = space
  const { hiddenSize, moeIntermediateSize: width } = config
  const { gate, up, down } = layout
  const common = {
    tile,
    groups,
    pairsAt: pairsAt(shape),
    slotStride: layout.stride,
    maxTiles: (tokens: number) => maxTiles(shape, tokens, tile.pairs),
  }
  const inner = { ...common, outStride: 2 * width, pairsPerRow: shape.k, gathers: true, label: 'experts' }
  const outer = { ...common, outStride: hiddenSize, pairsPerRow: 1, gathers: false, label: 'expertsDown' }
  const both = [segment(gate, 0), segment(up, width)]
  const listed = { groups, rows: (tokens: number) => mostPlaces(shape, tokens) }
  return [
    groupTokensOp(gpu, shape, step, table, choice, groups, place, { tile: tile.pairs }),
    ...(hasHalves ? [] : [halfRowsOp(gpu, normed, hiddenSize)]),
    tensorExpertsOp(gpu, pool, gate.format, gate.cols, both, normed.packed, expertGateUp, inner),
    halfGluOp(gpu, expertGateUp, expertAct.packed, width, activation, listed),
    tensorExpertsOp(gpu, pool, down.format, down.cols, [segment(down, 0)], expertAct.packed, expertRows, outer),
  ]
}

function byProducts({ gpu, config, space, layout, pool, place, activation }: PromptExperts, table: GPUBuffer) {
  const { shape, step, groups, choice, normed, expertGateUp, expertAct, expertRows } = space
  const { gate, up, down } = layout
  const { hiddenSize, moeIntermediateSize: width } = config
  const k = shape.k
  const common = {
    step,
    groups,
    pairsAt: pairsAt(shape),
    pairTile: shape.pairTile,
    slotStride: layout.stride,
    maxTiles: (tokens: number) => maxTiles(shape, tokens),
    label: 'experts',
  }
  const isFast = (matrix: SlotMatrix) => gpu.fast && matrix.format.bits < 16
  const ops: Promise<Op>[] = [groupTokensOp(gpu, shape, step, table, choice, groups, place)]
  const sameFormat = JSON.stringify(gate.format) === JSON.stringify(up.format)
  for (const segments of sameFormat
    ? [[segment(gate, 0), segment(up, width)]]
    : [[segment(gate, 0)], [segment(up, width)]]) {
    const [{ format, cols }] = segments
    if (isFast(segments[0])) ops.push(quantizeOp(gpu, normed, hiddenSize, format.bits))
    const options = { ...common, outStride: 2 * width, pairsPerRow: k }
    ops.push(groupedMatMulOp(gpu, pool, format, cols, segments, normed, expertGateUp, options))
  }
  ops.push(
    isFast(down)
      ? quantizeOp(gpu, expertAct, width, down.format.bits, k, { gateUp: expertGateUp, activation })
      : swiGluOp(gpu, expertGateUp, expertAct.values, width, k, activation),
  )
  const options = { ...common, outStride: hiddenSize, pairsPerRow: 1 }
  ops.push(groupedMatMulOp(gpu, pool, down.format, down.cols, [segment(down, 0)], expertAct, expertRows, options))
  return ops
}
