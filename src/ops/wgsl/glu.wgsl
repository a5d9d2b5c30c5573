// What a feed-forward block does between its products: silu(gate) * up, or with CLAMPED, g = min(gate, LIMIT) and
// u = clamp(up, ±LIMIT): (u + 1) * g * sigmoid(ALPHA * g). A clamp must not hide what is not finite.
#include activations
#include finite

fn glu(gate: f32, up: f32) -> f32 {
#if CLAMPED
  let g = min(gate, f32(LIMIT));
  let u = clamp(up, -f32(LIMIT), f32(LIMIT));
  let isWrong = (notFinite(bitcast<u32>(gate)) | notFinite(bitcast<u32>(up))) != 0u;
  return select((u + 1.0) * g * sigmoid(f32(ALPHA) * g), gate + up, isWrong);
#else
  return silu(gate) * up;
#endif
}

fn gluQuad(gate: vec4<f32>, up: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(glu(gate.x, up.x), glu(gate.y, up.y), glu(gate.z, up.z), glu(gate.w, up.w));
}
