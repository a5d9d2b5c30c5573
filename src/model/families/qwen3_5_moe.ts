// Qwen3.5 and 3.6 with experts (35B-A3B to 397B-A17B): gated delta nets with full attention in every fourth layer, and in
// every layer routed experts beside a gated shared one.
import type { Family } from './family.js'
import { ggufHybridMoe, readHybridMoe } from './sharedExpertMoe.js'

export const qwen3_5_moe: Family = {
  name: 'qwen3_5_moe',
  modelTypes: ['qwen3_5_moe', 'qwen3_5_moe_text'],
  dialect: 'qwen3_5',
  zeroCentredNorms: true,
  source: { renames: [], fusedExperts: 'stacked' },
  gguf: {
    architecture: 'qwen35moe',
    modelType: 'qwen3_5_moe_text',
    hasTiledHeads: true,
    configOf: ggufHybridMoe,
  },

  readShapes: readHybridMoe,
}
