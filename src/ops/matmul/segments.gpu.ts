// The uniform block of segments.wgsl.
import { uniformBuffer } from '../../gpu/device/kernel.js'
import { floatsAt, MAX_SEGMENTS, type MatrixSegment } from '../../gpu/memory/matrixWeights.js'

export interface SegmentTable {
  readonly buffer: GPUBuffer
  readonly tiles: number // tiles of all segments
}

/** `slotStride`: bytes from one expert slot to the next; 0 for resident matrices. */
export function segmentTable(
  device: GPUDevice,
  cols: number,
  segments: readonly MatrixSegment[],
  outStride: number,
  rowsPerTile: number,
  slotStride = 0,
): SegmentTable {
  const values = [cols, segments.length, outStride, slotStride / 4, 0, 0, 0, 0]
  let tiles = 0
  for (const segment of segments) {
    values.push(tiles, segment.rows, segment.weight / 4, segment.scales / 2, segment.biases / 2)
    values.push(segment.out, segment.norm ?? 0, segment.bias === undefined ? 0 : floatsAt(segment.bias))
    tiles += Math.ceil(segment.rows / rowsPerTile)
  }
  while (values.length < 8 + MAX_SEGMENTS * 8) values.push(0)
  return { buffer: uniformBuffer(device, values, 'segments'), tiles }
}
