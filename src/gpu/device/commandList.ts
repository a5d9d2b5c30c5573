// Dispatches and copies as a plain list, which can be encoded again and again: a token's commands are the same each time, and to
// walk through a list takes the host a fifth less than to go through all that records them. Good as long as its buffers are.

interface Dispatch {
  readonly pipeline: GPUComputePipeline
  readonly group: GPUBindGroup
  readonly x: number
  readonly y: number
  readonly z: number
}

interface Copy {
  readonly from: GPUBuffer
  readonly fromOffset: number
  readonly to: GPUBuffer
  readonly toOffset: number
  readonly size: number
}

/** Dispatches, and the copies after them. */
interface Section {
  readonly dispatches: Dispatch[]
  readonly copies: Copy[]
}

export class CommandList {
  private readonly sections: Section[] = []

  dispatch(dispatch: Dispatch): void {
    const last = this.sections.at(-1)
    if (last !== undefined && last.copies.length === 0) last.dispatches.push(dispatch)
    else this.sections.push({ dispatches: [dispatch], copies: [] })
  }

  copy(copy: Copy): void {
    const last = this.sections.at(-1)
    if (last === undefined) this.sections.push({ dispatches: [], copies: [copy] })
    else last.copies.push(copy)
  }

  encode(device: GPUDevice): GPUCommandBuffer {
    const encoder = device.createCommandEncoder()
    for (const { dispatches, copies } of this.sections) {
      if (dispatches.length > 0) encodePass(encoder, dispatches)
      for (const { from, fromOffset, to, toOffset, size } of copies) {
        encoder.copyBufferToBuffer(from, fromOffset, to, toOffset, size)
      }
    }
    return encoder.finish()
  }
}

function encodePass(encoder: GPUCommandEncoder, dispatches: readonly Dispatch[]): void {
  const pass = encoder.beginComputePass()
  for (const { pipeline, group, x, y, z } of dispatches) {
    pass.setPipeline(pipeline)
    pass.setBindGroup(0, group)
    pass.dispatchWorkgroups(x, y, z)
  }
  pass.end()
}
