// The embedding rows of the step's tokens into the hidden rows.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import { type Op, sequence } from '../../gpu/device/op.js'
import { formatConstants, type MatrixPart } from '../../gpu/memory/matrixWeights.js'

/** `parts`: the table in parts of rows, each alone in its buffer. */
export async function embedOp(
  gpu: GpuContext,
  parts: readonly MatrixPart[],
  tokenInfo: GPUBuffer,
  hidden: GPUBuffer,
): Promise<Op> {
  const ops = parts.map(async (part): Promise<Op> => {
    const kernel = await gpu.kernels.get('embed', { ...formatConstants(part.format), FAST: false })
    const [segment] = part.segments
    const values = [part.cols, segment.out, segment.rows, segment.scales / 2, segment.biases / 2, 0, 0, 0]
    const shape = uniformBuffer(gpu.device, values, 'embed part')
    const group = kernel.bind([part.buffer, shape, tokenInfo, hidden])
    return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
  })
  return sequence(await Promise.all(ops))
}
