// A small model for tests of faults: a few layers of each kind, and more experts than a call needs.
import type { RandomShape } from '../models/randomModel.js'

// One format for all: each one more is a second of compiling kernels on an emulated GPU.
const q4 = { bits: 4, group: 32, scaleType: 'BF16' } as const

export const faultShape: RandomShape = {
  hidden: 32,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  keyHeads: 1,
  valueHeads: 2,
  keyDim: 16,
  valueDim: 32,
  experts: 10,
  k: 2,
  intermediate: 32,
  sharedIntermediate: 32,
  vocab: 60,
  tied: false,
  layers: ['linear_attention', 'full_attention', 'linear_attention'],
  formats: [q4],
  expertFormats: [q4, q4, q4],
  seed: 5,
}
