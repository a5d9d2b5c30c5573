// x [rows, width] plus a bias [width], in place; nothing where there is none.

export function addBias(x: Float32Array, bias: Float32Array | null): Float32Array {
  if (bias !== null) for (let i = 0; i < x.length; i++) x[i] += bias[i % bias.length]
  return x
}
