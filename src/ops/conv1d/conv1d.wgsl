// Causal depthwise convolution of width 4 over q | k | v, SiLU, and the norms of q and k. One workgroup per head and
// token. The inputs before a run's first token come from the state, the last three go to the new state.
#include reduce
#include activations
#include step
const KEY_WIDTH = KEY_HEADS * KEY_DIM;
const CHANNELS = 2u * KEY_WIDTH + VALUE_HEADS * VALUE_DIM;

@group(0) @binding(0) var<storage, read> taps: array<vec4<f32>>; // [channels]
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> runs: array<Run>;
@group(0) @binding(3) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE], q | k | v first
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>; // [slots, STATE_QUADS]: the last 3 inputs by channel first
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, channels]

fn inputAt(token: u32, index: u32, back: u32, channel: u32, stateIn: u32) -> f32 {
  if (back > index) { return states[stateIn * STATE_QUADS + channel][3u + index - back]; }
  return inputs[(token - back) * IN_STRIDE + channel];
}

@compute @workgroup_size(WG)
#include mainOfTeam
  let head = group.x; // query heads, key heads, value heads
  let token = group.y;
  let info = tokens[token];
  let isLast = info.index + 1u == runs[info.run].count;
  let isValue = head >= 2u * KEY_HEADS;
  let first = select(head * KEY_DIM, 2u * KEY_WIDTH + (head - 2u * KEY_HEADS) * VALUE_DIM, isValue);
  let width = select(KEY_DIM, VALUE_DIM, isValue);
  var values: array<f32, SHARE>;
  var squares = 0.0;
#for n SHARE
  {
    let i = thread + $(n)u * WG;
    if (i < width) {
      let channel = first + i;
      let window = vec4<f32>(
        inputAt(token, info.index, 3u, channel, info.stateIn), inputAt(token, info.index, 2u, channel, info.stateIn),
        inputAt(token, info.index, 1u, channel, info.stateIn), inputs[token * IN_STRIDE + channel]);
      let value = silu(dot(window, taps[channel]));
      squares += value * value;
      values[$(n)] = value;
      if (isLast) { states[info.stateOut * STATE_QUADS + channel] = vec4<f32>(window.yzw, 0.0); }
    }
  }
#endfor
  var scale = 1.0;
  if (!isValue) {
    scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) + 1e-6);
    if (head < KEY_HEADS) { scale *= inverseSqrt(f32(KEY_DIM)); }
  }
#for n SHARE
  if (thread + $(n)u * WG < width) { out[token * CHANNELS + first + thread + $(n)u * WG] = values[$(n)] * scale; }
#endfor
}
