// The layout of activation records, shared by those who write and those who read them.
//
// A unit is what a product takes at once: four vectors of integer weights. It is 64 columns, and 32 with 8 bits (two
// vectors, each as two nibbles) and with 4 bits in groups of 32. A unit lies within a group, but for 2 bits in groups of
// 32, where it holds two. A fast record is, unit by unit, int8 [columns] in the order in which weights come out of their
// bytes and float [4] scale, one for each lane of the products' sums; then float [groups padded to 4] sums. Units of 64
// columns of one group go in pairs: int8 [2, 64], then float [2, 2] scale; the second of the last pair may be missing.
// An exact record is float [cols padded to 64] in blocks of four words of weights: first elements, second elements, …

// @ts-ignore: decorator
@inline
export function unitColumns(bits: i32, group: i32): i32 {
  return bits == 8 || (bits == 4 && group == 32) ? 32 : 64
}

/** Bytes of a unit in a fast record. */
// @ts-ignore: decorator
@inline
export function unitStride(bits: i32, group: i32): usize {
  return <usize>(unitColumns(bits, group) + 16)
}

/** Whether units go in pairs: 64 columns of one group. */
// @ts-ignore: decorator
@inline
export function isPaired(bits: i32, group: i32): bool {
  return bits < 8 && group > 32
}

/** Bytes of a pair of units. */
// @ts-ignore: decorator
@inline
export const PAIR_BYTES: usize = 144

// @ts-ignore: decorator
@inline
export function pairedSums(cols: i32): usize {
  return <usize>((cols + 127) >> 7) * PAIR_BYTES
}

/** Where the sums begin in a fast record. */
// @ts-ignore: decorator
@inline
export function sumsOffset(cols: i32, bits: i32, group: i32): usize {
  if (isPaired(bits, group)) return pairedSums(cols)
  const columns = unitColumns(bits, group)
  return <usize>((cols + columns - 1) / columns) * unitStride(bits, group)
}

/** Tokens that a product takes over a row of weights. */
// @ts-ignore: decorator
@inline
export const TOKEN_TILE: i32 = 32

// A product's scratch: the addresses of records, the addresses of outputs, accumulators, then up to eight records.
// @ts-ignore: decorator
@inline
export const TILE_ADDRESSES: usize = 128
// @ts-ignore: decorator
@inline
export const TILE_ACCUMULATORS: usize = 256
/** Bytes of a unit in a tile of paired records. */
// @ts-ignore: decorator
@inline
export const TILE_UNIT: usize = 80
// @ts-ignore: decorator
@inline
export const TILE_RECORDS: usize = 1280

/** Addresses of the records and outputs of `count` tokens, from the token `first` on, or those that indices name. */
export function storeAddresses(
  out: usize, outStride: usize, outIndex: usize, act: usize, actStride: usize, actIndex: usize, first: i32, count: i32, scratch: usize,
): void {
  for (let t = 0; t < count; t++) {
    const from = actIndex ? load<u32>(actIndex + (<usize>(first + t) << 2)) : first + t
    const to = outIndex ? load<u32>(outIndex + (<usize>(first + t) << 2)) : first + t
    store<u32>(scratch + (<usize>t << 2), <u32>(act + <usize>from * actStride))
    store<u32>(scratch + (<usize>t << 2), <u32>(out + <usize>to * outStride), TILE_ADDRESSES)
  }
}

/**
 * Of so many tokens, those that meet two rows of weights in blocks at once: 8, 4, 2 or 1. Without relaxed SIMD a product takes so many
 * instructions that unpacking for fewer does not count.
 */
// @ts-ignore: decorator
@inline
export function tileTokens(left: i32): i32 {
  if (ASC_FEATURE_RELAXED_SIMD && left >= 8) return 8
  return left >= 4 ? 4 : min(2, left)
}
