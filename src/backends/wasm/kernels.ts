// The kernels of the WASM module as the runtime sees them: their signatures, the layouts they read and write, and how a
// module becomes callable over a memory. Kernels know nothing of models, threads or allocation: the caller owns the
// whole memory and passes addresses and sizes. They check nothing; wrong arguments corrupt memory.
//
// Conventions. Every address and stride is in bytes; every count is in elements. Floats are float32. Addresses of
// floats and of activation records are multiples of 16 (rows too: so strides are multiples of 16), addresses inside
// weights need no alignment. Ranges are [begin, end): a kernel with one may be called for disjoint ranges by several
// threads at once, and each output element has the same bits however the range is cut and however many tokens are in
// the call. Outputs are overwritten fully and may not overlap inputs, except where "in place" is said.
// The module holds no data of its own in the memory: address 0 on belongs to the caller.
// WebAssembly takes numbers, by position: a kernel of many arguments is called from one place, which others give named things.

import type { WasmMemory, WasmModule } from '../../base/wasmTypes.js'
import type { FloatType } from '../../model/floats.js'
import type { QuantBits, QuantGroup } from '../../model/tensors.js'
import type { Precision } from '../backend.js'
import { PAGE_TOKENS } from '../kvPages.js'

/** How floats in weights are stored, as kernels take it (`type` arguments). */
export const floatTypeCode: Readonly<Record<FloatType, number>> = { BF16: 0, F16: 1, F32: 2 }

/**
 * Bytes of one activation record, the form in which `matmulFast` and `matmulExact` take one input vector: a multiple of
 * 16. A record fits matrices of equal cols, bits and group only (layout: matmul/layout.as.ts).
 */
export function activationBytes(cols: number, bits: QuantBits, group: QuantGroup, precision: Precision): number {
  if (precision === 'exact') return Math.ceil(cols / 64) * 256 + 64
  const sums = Math.ceil(cols / group / 4) * 16
  // A pair of units is 144 bytes, but 160 in a product's scratch.
  if (bits < 8 && group > 32) return Math.ceil(cols / 128) * 160 + sums
  const unit = bits === 8 || (bits === 4 && group === 32) ? 32 : 64
  return Math.ceil(cols / unit) * (unit + 16) + sums
}

/** Bytes of scratch that a product needs, private to the call; `record`: `activationBytes` of its inputs, 0 for plain ones. */
export function matmulScratchBytes(record: number): number {
  return 1280 + 8 * record
}

/** `activationBytes` for weights in blocks (layout: matmul/blocks.as.ts). */
export function blockActivationBytes(cols: number, group: number): number {
  return Math.ceil(cols / 128) * (group === 16 ? 192 : 160)
}

/** Bytes of scratch that a product of weights in blocks, or one of its rows as floats, needs. */
export function blockScratchBytes(cols: number): number {
  // Eight records beside each other, which is more than a row as floats with its scales.
  return 2 * 1280 + Math.ceil(cols / 128) * 8 * 192
}

/** Bytes of scratch that one thread's call of `attention` needs: for so many tokens and heads in the call. */
export function attentionScratchBytes(tokens: number, heads: number, headDim: number): number {
  return Math.min(tokens, ATTENTION_QUERY_BLOCK) * heads * (headDim * 4 + 16 + PAGE_TOKENS * 4)
}

/** `attention` walks the pages once for so many tokens. */
export const ATTENTION_QUERY_BLOCK = 8

/** Bytes of scratch that one thread's call of `route` needs. */
export function routeScratchBytes(experts: number, groups: number): number {
  return (Math.ceil(experts / 4) + Math.ceil(groups / 4)) * 16
}

/* biome-ignore format: one kernel, one paragraph */
export interface Kernels {
  // --- matrices ----------------------------------------------------------------------------------------------------

  /**
   * Quantizes rows x [tokens, cols] to int8 per group into records (`activationBytes`), for tokens [begin, end).
   * `cols` is a multiple of `group`.
   */
  prepareFast(out: number, outStride: number, x: number, xStride: number, cols: number, bits: QuantBits, group: QuantGroup, tokenBegin: number, tokenEnd: number): void

  /** The same for float32 activations: permuted to the order of the packed weights, with the sum of each group. */
  prepareExact(out: number, outStride: number, x: number, xStride: number, cols: number, bits: QuantBits, group: QuantGroup, tokenBegin: number, tokenEnd: number): void

  /**
   * out[outIndex[t]][r] = Σ w[r][c] · x[actIndex[t]][c] for rows [rowBegin, rowEnd) and all `tokens`; weights in MLX's
   * affine layout as on disk. `out` is the address of row 0 of token 0 and `weight`, `scales`, `biases` those of row 0,
   * whatever the range. `outIndex` and `actIndex` are addresses of u32 [tokens], or 0 for 0, 1, 2, …
   * `scaleType`: `floatTypeCode` of BF16 or F16. `scratch`: `matmulScratchBytes`.
   */
  matmulFast(out: number, outStride: number, outIndex: number, weight: number, scales: number, biases: number, scaleType: number, bits: QuantBits, group: QuantGroup, cols: number, rowBegin: number, rowEnd: number, act: number, actStride: number, actIndex: number, tokens: number, scratch: number): void

  /** `matmulFast` on records of `prepareExact`. */
  matmulExact(out: number, outStride: number, outIndex: number, weight: number, scales: number, biases: number, scaleType: number, bits: QuantBits, group: QuantGroup, cols: number, rowBegin: number, rowEnd: number, act: number, actStride: number, actIndex: number, tokens: number, scratch: number): void

  /** The same for plain weights [rows, cols] of `type`; x is rows of floats as they are. Any `cols`. */
  matmulPlain(out: number, outStride: number, outIndex: number, weight: number, type: number, cols: number, rowBegin: number, rowEnd: number, x: number, xStride: number, xIndex: number, tokens: number, scratch: number): void

  /** out [cols] = one row of a quantized matrix, float32(scale · q + bias): an embedding. Addresses are those of row 0. */
  dequantizeRow(out: number, weight: number, scales: number, biases: number, scaleType: number, bits: QuantBits, group: QuantGroup, cols: number, row: number): void

  /**
   * `prepareFast` for weights in blocks (`blockActivationBytes`), codes of `bits` in groups of `group`. `factor`: -1 where the
   * format has minima, else what takes a shift of codes back (`blockShift`). `isLanes`: `hasLaneSums` of the format.
   */
  prepareBlocks(out: number, outStride: number, x: number, xStride: number, cols: number, bits: number, group: number, factor: number, isLanes: boolean, tokenBegin: number, tokenEnd: number): void

  /** `matmulFast` for weights in blocks; `format`: `kernel` of a BlockFormat. `scratch`: `blockScratchBytes`. */
  matmulBlocks(out: number, outStride: number, outIndex: number, weight: number, scales: number, format: number, span: number, cols: number, rowBegin: number, rowEnd: number, act: number, actStride: number, actIndex: number, tokens: number, scratch: number): void

  /**
   * The same for float32 activations: records of `prepareExact` (4 bits) where codes have four bits in groups of 32, else rows of
   * floats as they are.
   */
  matmulBlocksExact(out: number, outStride: number, outIndex: number, weight: number, scales: number, format: number, span: number, cols: number, rowBegin: number, rowEnd: number, act: number, actStride: number, actIndex: number, tokens: number, scratch: number): void

  /** `dequantizeRow` for weights in blocks. `scratch`: `blockScratchBytes`. */
  dequantizeBlocks(out: number, weight: number, scales: number, format: number, span: number, cols: number, row: number, scratch: number): void

  /** out [count] floats from `count` values of `type` (norm weights, taps, rows of plain embeddings). Any alignment. */
  convertFloats(out: number, source: number, type: number, count: number): void

  // --- norms, rope, gates ------------------------------------------------------------------------------------------

  /** out[r] = x[r] · rsqrt(mean(x[r]²) + eps) · weight, rows of `dim`. In place is fine. */
  rmsNorm(out: number, outStride: number, x: number, xStride: number, weight: number, dim: number, eps: number, rows: number): void

  /** `rmsNorm` of each head of each token: q_norm, k_norm. In place is fine. */
  rmsNormHeads(out: number, outTokenStride: number, outHeadStride: number, x: number, xTokenStride: number, xHeadStride: number, weight: number, dim: number, eps: number, tokens: number, heads: number): void

  /** out = x · rsqrt(mean(x²) + eps) · weight · silu(z) for each head [headBegin, headEnd) of each token; heads are contiguous. In place (out = x) is fine. */
  rmsNormGated(out: number, outStride: number, x: number, xStride: number, z: number, zStride: number, weight: number, dim: number, eps: number, tokens: number, headBegin: number, headEnd: number): void

  /** out = x · rsqrt(Σx² + 1e-6) · scale for each head [headBegin, headEnd) of each token; heads are contiguous. In place is fine. */
  l2NormHeads(out: number, outStride: number, x: number, xStride: number, dim: number, scale: number, tokens: number, headBegin: number, headEnd: number): void

  /**
   * Rotates the first `rotaryDim` channels of each head in half-split pairs, in place.
   * `table`: per token cos of the rotaryDim / 2 angles of its position, then their sin.
   */
  rope(x: number, tokenStride: number, headStride: number, table: number, tableStride: number, rotaryDim: number, tokens: number, heads: number): void

  /** x[t][h][i] *= sigmoid(gate[t][h][i]) in place, for heads [headBegin, headEnd); i < dim. */
  sigmoidGate(x: number, xTokenStride: number, xHeadStride: number, gate: number, gateTokenStride: number, gateHeadStride: number, dim: number, tokens: number, headBegin: number, headEnd: number): void

  /** out[t][i] = silu(gate[t][i]) · up[t][i] for i in [begin, end), both multiples of 4. In place is fine. */
  siluMul(out: number, outStride: number, gate: number, gateStride: number, up: number, upStride: number, tokens: number, begin: number, end: number): void

  /**
   * The same with g = min(gate, limit) and u = clamp(up, ±limit): (u + 1) · g · sigmoid(alpha · g). What is not finite
   * before the clamp is NaN after it.
   */
  clampedSwiglu(out: number, outStride: number, gate: number, gateStride: number, up: number, upStride: number, limit: number, alpha: number, tokens: number, begin: number, end: number): void

  /** out[outIndex[t]][i] += bias[i] for i in [begin, end); `outIndex` as in `matmulFast`, `bias` of floats of `type` at any address. */
  addBias(out: number, outStride: number, outIndex: number, bias: number, type: number, tokens: number, begin: number, end: number): void

  /** out[i] = x[i] + y[i]. In place is fine. `count` is a multiple of 4. */
  add(out: number, x: number, y: number, count: number): void

  // --- attention ---------------------------------------------------------------------------------------------------

  /**
   * Causal attention of `tokens` queries at positions start, start + 1, … over K/V pages, for query heads [headBegin, headEnd).
   * q [tokens][heads] with strides (heads of a token need not be contiguous); out [tokens][heads · headDim].
   * kPages, vPages: u32 addresses [pages], page p holding rows of positions p · PAGE_TOKENS and on, each row
   * [kvHeads · headDim]. The rows of the queries' own positions are already in the pages. headDim: a multiple of 4.
   * window: how many positions a query sees, its own among them; 0: all up to its own. sinks: address of a further logit per
   * head that takes part in the softmax alone, [heads], or 0.
   * scratch: `attentionScratchBytes(tokens, headEnd - headBegin, headDim)`, private to the call.
   */
  attention(out: number, outStride: number, q: number, qTokenStride: number, qHeadStride: number, kPages: number, vPages: number, start: number, tokens: number, heads: number, kvHeads: number, headDim: number, scale: number, window: number, sinks: number, headBegin: number, headEnd: number, scratch: number): void

  // --- gated delta net ---------------------------------------------------------------------------------------------

  /**
   * Causal depthwise convolution of width 4 and SiLU over `tokens` rows, for channels [channelBegin, channelEnd), both
   * multiples of 4. stateIn and stateOut [3, channels]: the inputs before and after, oldest first (two buffers).
   * taps [4, channels], tap-major, oldest first (the file has channel-major).
   */
  conv1dSilu(out: number, outStride: number, x: number, xStride: number, stateIn: number, stateOut: number, taps: number, channels: number, tokens: number, channelBegin: number, channelEnd: number): void

  /**
   * beta = sigmoid(b) and decay = exp(-exp(aLog) · softplus(a + dtBias)); all [tokens][heads], aLog and dtBias [heads].
   * Every row has `stride`; rows of b, a, beta and decay are readable and writable up to a multiple of 4 heads, and so
   * are aLog and dtBias.
   */
  deltaGates(beta: number, decay: number, b: number, a: number, stride: number, aLog: number, dtBias: number, heads: number, tokens: number): void

  /**
   * The gated delta rule over `tokens`, for value heads [headBegin, headEnd). q and k [tokens][keyHeads · keyDim] after
   * l2 norm and scaling, v and out [tokens][valueHeads · valueDim], beta and decay [tokens][valueHeads] with gateStride.
   * stateIn, stateOut [valueHeads, valueDim, keyDim]: read from one, the last state written to the other. keyDim: a multiple of 4.
   */
  gatedDelta(out: number, outStride: number, q: number, k: number, qkStride: number, v: number, vStride: number, beta: number, decay: number, gateStride: number, stateIn: number, stateOut: number, keyHeads: number, valueHeads: number, keyDim: number, valueDim: number, tokens: number, headBegin: number, headEnd: number): void

  // --- mixture of experts ------------------------------------------------------------------------------------------

  /**
   * The k experts of each token [begin, end), the highest weight first (ties: the lower index), and the weights: indices u32
   * [tokens, k], weights [tokens, k]. Scores are softmax or, with `sigmoid`, sigmoid of the logits. The choice is by score +
   * selectionBias (address of [experts] floats, or 0), in the `groupsUsed` of `groups` groups of equal size whose two best add
   * up to most (groups 0: in all); k is at most what those groups have. Weights are scores · scale, with
   * `renormalize` of scores that were brought to the sum 1.
   * Indices are always valid and distinct, even where logits are NaN. Rows of logits and bias are readable up to a multiple
   * of 4. scratch: `routeScratchBytes`, private to the call.
   */
  route(indices: number, weights: number, logits: number, logitsStride: number, experts: number, k: number, sigmoid: boolean, selectionBias: number, groups: number, groupsUsed: number, renormalize: boolean, scale: number, tokenBegin: number, tokenEnd: number, scratch: number): void

  /**
   * out[t] = Σ_rank weights[t][rank] · expertOut[t · k + rank] + sigmoid(gate[t]) · shared[t], ranks ascending, for
   * columns [colBegin, colEnd), both multiples of 4. weights [tokens, k] of `route`; gate: one float per gateStride, or 0 for
   * a shared expert that counts whole; shared 0: there is none.
   */
  combine(out: number, outStride: number, expertOut: number, expertStride: number, weights: number, k: number, shared: number, sharedStride: number, gate: number, gateStride: number, tokens: number, colBegin: number, colEnd: number): void

  // --- logits ------------------------------------------------------------------------------------------------------

  /** Index of the highest of x [count], the lowest such index; -1 where one of them is NaN or infinite. */
  argmax(x: number, count: number): number
}

/**
 * The builds. `dot-product`: relaxed SIMD with sums of four products in one instruction, which some processors have (VNNI, DotProd). Its results are
 * those of `relaxed` to the bit. `baseline`: without relaxed SIMD.
 */
export type SimdLevel = 'dot-product' | 'relaxed' | 'baseline'

/** A compiled module, which may be posted to workers, and which build it is. */
export interface KernelModule {
  readonly module: WasmModule
  readonly simd: SimdLevel
}

/** Where the build puts the module. */
export function kernelUrl(simd: SimdLevel): URL {
  return new URL(`./kernels.${simd}.wasm`, import.meta.url)
}

/** Whether WASM here takes relaxed SIMD: a module of one function with `i16x8.relaxed_dot_i8x16_i7x16_s`. */
export function hasRelaxedSimd(): boolean {
  return WebAssembly.validate(
    Uint8Array.of(
      ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00], // magic, version 1
      ...[0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b], // type: () -> v128
      ...[0x03, 0x02, 0x01, 0x00], // one function of it
      ...[0x0a, 0x0f, 0x01, 0x0d, 0x00], // its body: i32.const 0, splat, twice, the dot, end
      ...[0x41, 0x00, 0xfd, 0x0f, 0x41, 0x00, 0xfd, 0x0f, 0xfd, 0x92, 0x02, 0x0b],
    ),
  )
}

/** The fastest build that runs here. */
export function bestSimd(): SimdLevel {
  if (!hasRelaxedSimd()) return 'baseline'
  return hasDotProducts() ? 'dot-product' : 'relaxed'
}

/**
 * Whether a sum of four products is one instruction here. Where an x86 processor has none, it is made of sums of two that are cut
 * off at 16 bits: 127 · 255 + 127 · 255 becomes 32767. ARM takes 255 for -1, with such an instruction or without, and without it
 * both builds take about as many. Whatever else comes out is wrong: V8 11 (Node 20) counts the products twice on x86.
 */
export function hasDotProducts(): boolean {
  const module = new WebAssembly.Module(
    Uint8Array.of(
      ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00], // magic, version 1
      ...[0x01, 0x08, 0x01, 0x60, 0x03, 0x7f, 0x7f, 0x7f, 0x01, 0x7f], // type: (x, q, c: i32) -> i32
      ...[0x03, 0x02, 0x01, 0x00], // one function of it
      ...[0x07, 0x07, 0x01, 0x03, 0x64, 0x6f, 0x74, 0x00, 0x00], // exported as 'dot'
      ...[0x0a, 0x16, 0x01, 0x14, 0x00], // its body: each argument in all lanes, the bytes of x and q,
      ...[0x20, 0x00, 0xfd, 0x0f, 0x20, 0x01, 0xfd, 0x0f, 0x20, 0x02, 0xfd, 0x11],
      ...[0xfd, 0x93, 0x02, 0xfd, 0x1b, 0x03, 0x0b], // i32x4.relaxed_dot_i8x16_i7x16_add_s, the last lane, end
    ),
  )
  const { dot } = new WebAssembly.Instance(module).exports as { dot(x: number, q: number, c: number): number }
  const large = dot(127, 255, 0)
  const isRight = dot(-127, 15, 7) === 4 * -127 * 15 + 7 && dot(127, 15, -9) === 4 * 127 * 15 - 9
  return isRight && (large === 4 * 127 * 255 || large === -4 * 127)
}

/** Kernels over one memory. The same module may be instantiated over several, and once per thread on each. */
export async function instantiateKernels({ module }: KernelModule, memory: WasmMemory): Promise<Kernels> {
  const imports = { env: { memory: memory as WebAssembly.Memory } }
  const instance = await WebAssembly.instantiate(module as WebAssembly.Module, imports)
  return instance.exports as unknown as Kernels
}
