// Causal depthwise convolution of width 4 over the channels of qkv, then SiLU. The state is the last 3 inputs, oldest
// first.
import { silu } from '../activation/reference.js'

interface ConvResult {
  readonly out: Float32Array // [tokens, channels]
  readonly state: Float32Array // [3, channels], after the last token
}

/** x [tokens, channels], state [3, channels], taps [channels, 4] oldest first */
export function conv1d(x: Float32Array, state: Float32Array, taps: Float32Array): ConvResult {
  const channels = state.length / 3
  const inputs = new Float32Array(state.length + x.length) // [3 + tokens, channels]
  inputs.set(state)
  inputs.set(x, state.length)
  const out = new Float32Array(x.length)
  for (let i = 0; i < x.length; i++) {
    const channel = i % channels
    let sum = 0
    for (let tap = 0; tap < 4; tap++) sum += taps[channel * 4 + tap] * inputs[i + tap * channels]
    out[i] = silu(sum)
  }
  return { out, state: inputs.slice(x.length) }
}
