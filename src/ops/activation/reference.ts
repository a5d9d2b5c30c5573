// The scalar functions that several kernels share.

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x))
}

export function silu(x: number): number {
  return x / (1 + Math.exp(-x))
}

export function softplus(x: number): number {
  return x > 20 ? x : Math.log1p(Math.exp(x))
}
