fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(min(-x, 80.0))); }
fn silu(x: f32) -> f32 { return x * sigmoid(x); }
fn softplus(x: f32) -> f32 {
  if (x > 20.0) { return x; }
  return log(1.0 + exp(x));
}
