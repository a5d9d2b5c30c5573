// The self-test's part about experts on matrix units. No expert is on the GPU yet when it runs: it makes one of noise, in the model's own
// format, and lets all tokens choose it.
import { storageBuffer } from '../../../gpu/device/kernel.js'
import type { Op } from '../../../gpu/device/op.js'
import type { SlotLayout, SlotMatrix } from '../../../gpu/memory/slotLayout.js'
import type { PoolBuffer } from '../../../gpu/memory/slotPools.js'
import { widenFloats } from '../../../model/floats.js'
import { halfRowsOp } from '../../../ops/matmul/halfRows.gpu.js'
import { matVec } from '../../../ops/matmul/reference.js'
import { groupTokensOp, maxTiles, pairsAt } from '../../../ops/moe/groupTokens.gpu.js'
import { areForTensors, EXPERT_TILES, type ExpertTile, tensorExpertsOp } from '../../../ops/moe/tensorExperts.gpu.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import { differs, FAST, noise, runAndRead } from './selfTestTools.js'

const ROWS = 16 // of a matrix that are compared
const SLOT = 1 // where the expert is
const MISSING = 0xffffffff
const [SCALE, BIAS] = [0x3c, 0xbd] // the upper bytes of a positive and of a negative number of 16 bits, of either kind

/** What is wrong; null where all is well, or where no layer's experts go to matrix units. `x`: [tokens, hidden], in `normed`. */
export async function checkExperts(
  parts: LayerParts,
  x: Float32Array,
  tokens: number,
  run: (op: Op, tokens: number, buffer: GPUBuffer, length: number) => Promise<Float32Array>,
): Promise<string | null> {
  const { gpu, space, experts } = parts
  const layout = experts?.layouts.find(each => areForTensors(gpu, each))
  if (layout === undefined) return null
  const { device } = gpu
  const record = noiseRecord(layout)
  const made: GPUBuffer[] = []
  const put = (values: Uint8Array | Uint32Array, size = values.byteLength, at = 0) => {
    const buffer = storageBuffer(device, size, 'self-test')
    made.push(buffer)
    device.queue.writeBuffer(buffer, at, values)
    return buffer
  }
  const { experts: count, maxTokens, k } = space.shape
  const expert = {
    ...{ layout, record, x, tokens, run },
    pool: { generation: 0, buffer: put(record, (SLOT + 1) * layout.stride, SLOT * layout.stride) },
    table: put(new Uint32Array(count).fill(MISSING).fill(SLOT, 0, 1)),
    choice: put(new Uint32Array(maxTokens * k)),
  }
  try {
    device.queue.writeBuffer(space.step, 0, new Uint32Array([tokens, 1, 0, 0]))
    for (const tile of EXPERT_TILES) {
      const wrong = await checkTile(parts, expert, tile)
      if (wrong !== null) return wrong
    }
    return null
  } finally {
    for (const each of made) each.destroy()
  }
}

interface TestExpert {
  readonly layout: SlotLayout
  readonly record: Uint8Array
  readonly pool: PoolBuffer
  readonly table: GPUBuffer // in which it is the only one
  readonly choice: GPUBuffer // it alone
  readonly x: Float32Array // [tokens, hidden]
  readonly tokens: number
  run(op: Op, tokens: number, buffer: GPUBuffer, length: number): Promise<Float32Array>
}

async function checkTile({ gpu, config, space }: LayerParts, expert: TestExpert, tile: ExpertTile) {
  const { step, groups, normed, expertGateUp, expertAct, expertRows, shape } = space
  const { layout, record, pool, table, choice, x, tokens, run } = expert
  const { hiddenSize, moeIntermediateSize: width } = config
  const { gate, up, down } = layout
  const pairs = tokens * shape.k
  const common = {
    ...{ tile, groups, pairsAt: pairsAt(shape), slotStride: layout.stride, label: 'experts' },
    maxTiles: (count: number) => maxTiles(shape, count, tile.pairs),
  }
  const inner = { ...common, outStride: 2 * width, pairsPerRow: shape.k, gathers: true }
  const outer = { ...common, outStride: hiddenSize, pairsPerRow: 1, gathers: false }
  const both = [
    { ...gate, out: 0 },
    { ...up, out: width },
  ]
  const act = noise(pairs * width)
  gpu.device.queue.writeBuffer(expertAct.values, 0, act)
  const [group, halve, first, halveAct, second] = await Promise.all([
    groupTokensOp(gpu, shape, step, table, choice, groups, 0, { tile: tile.pairs }),
    halfRowsOp(gpu, normed, hiddenSize),
    tensorExpertsOp(gpu, pool, gate.format, gate.cols, both, normed.packed, expertGateUp, inner),
    halfRowsOp(gpu, expertAct, width),
    tensorExpertsOp(gpu, pool, down.format, down.cols, [{ ...down, out: 0 }], expertAct.packed, expertRows, outer),
  ])
  const list = new Uint32Array((await runAndRead(gpu.device, group, tokens, groups, common.pairsAt + pairs)).buffer)
  // Which pair of an expert comes first is left open.
  const token = Math.floor(list[common.pairsAt + pairs - 1] / shape.k)
  if (!(token < tokens)) return `pairs sorted by expert end with token ${token} of ${tokens}`
  await run(halve, tokens, normed.packed, 4)
  const rows = await run(first, tokens, expertGateUp, pairs * 2 * width)
  const input = x.subarray(token * hiddenSize, (token + 1) * hiddenSize)
  const last = rows.subarray((pairs - 1) * 2 * width)
  const wrong =
    differs("an expert's first product", last, productOf(gate, record, input), FAST) ??
    differs("an expert's second product", last.subarray(width), productOf(up, record, input), FAST)
  if (wrong !== null) return wrong
  await run(halveAct, pairs, expertAct.packed, 4)
  const out = await run(second, tokens, expertRows, pairs * hiddenSize)
  const want = productOf(down, record, act.subarray((pairs - 1) * width))
  return differs("an expert's last product", out.subarray((pairs - 1) * hiddenSize), want, FAST)
}

/** An expert's bytes: any codes, scales and biases of some size. */
function noiseRecord({ stride, gate, up, down }: SlotLayout): Uint8Array {
  const record = new Uint8Array(noise(stride / 4).buffer)
  for (const { rows, cols, format, scales, biases } of [gate, up, down]) {
    for (let i = 0; i < (rows * cols) / format.group; i++) {
      record[scales + 2 * i + 1] = SCALE
      record[biases + 2 * i + 1] = BIAS
    }
  }
  return record
}

/** The first rows of one of its matrices times x, on the CPU. */
function productOf({ cols, format, weight, scales, biases }: SlotMatrix, record: Uint8Array, x: Float32Array) {
  const { group } = format as { group: 32 | 64 | 128 }
  const packed = new Uint32Array(record.slice(weight, weight + (ROWS * cols) / 2).buffer)
  const halves = (at: number) => {
    const floats = new Float32Array((ROWS * cols) / group)
    widenFloats(format.f16 ? 'F16' : 'BF16', record.subarray(at, at + floats.length * 2), floats)
    return floats
  }
  const matrix = { kind: 'quantized', rows: ROWS, cols, bits: 4, group, packed } as const
  return matVec({ ...matrix, scales: halves(scales), biases: halves(biases) }, x)
}
