// An op is something that a step records: a dispatch or a few, prepared at open, whose grid depends only on the step.
import type { Recorder } from './recorder.js'

export interface StepSize {
  readonly tokens: number
  readonly runs: number
}

export type Op = (recorder: Recorder, size: StepSize) => void

/** A bind group over buffers that may be replaced (pools grow): made again when their generation moves on. */
export function rebound(pool: { readonly generation: number }, make: () => GPUBindGroup): () => GPUBindGroup {
  let generation = -1
  let group: GPUBindGroup
  return () => {
    if (generation !== pool.generation) {
      group = make()
      generation = pool.generation
    }
    return group
  }
}

export function sequence(ops: readonly Op[]): Op {
  return (recorder, size) => {
    for (const op of ops) op(recorder, size)
  }
}
