// Norm (QK_NORM) and RoPE of a token's query or key, value by value. Angles come from a table made on the CPU: a GPU's sin is too
// coarse for them.
#if QK_NORM
@group(0) @binding(0) var<storage, read> norms: array<f32>; // [2, headDim]: query, key
#endif
@group(0) @binding(2) var<storage, read> angles: array<vec2<f32>>; // [tokens, rotaryDim / 2] cos, sin
@group(0) @binding(3) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: a query every Q_STRIDE; k at K_AT, v at V_AT

fn normed(at: u32, i: u32, scale: f32, norm: u32) -> f32 {
#if QK_NORM
  return inputs[at + i] * scale * norms[norm + i];
#else
  return inputs[at + i];
#endif
}

// Value `i` of the head at `at`, `scale` being 1 over its root mean square; `norm`: where its weights begin.
fn rotated(token: u32, at: u32, i: u32, scale: f32, norm: u32) -> f32 {
  const half = ROTARY_DIM / 2u;
  let value = normed(at, i, scale, norm);
  if (i >= ROTARY_DIM) { return value; }
  let angle = angles[token * half + i % half];
  if (i < half) { return value * angle.x - normed(at, i + half, scale, norm) * angle.y; }
  return value * angle.x + normed(at, i - half, scale, norm) * angle.y;
}
