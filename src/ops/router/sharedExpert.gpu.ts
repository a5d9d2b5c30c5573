// How kernels that add the shared expert are told of it.
import type { MoeShape } from '../../model/layers.js'

export function sharedConstant(shared: MoeShape['shared']): 0 | 1 | 2 {
  return shared === 'none' ? 0 : shared === 'gated' ? 1 : 2
}

/** What they bind for it: its rows, and the logits with its gate. */
export function sharedBindings(shared: MoeShape['shared'], rows: GPUBuffer, logits: GPUBuffer): (GPUBuffer | null)[] {
  return [shared === 'none' ? null : rows, shared === 'gated' ? logits : null]
}
