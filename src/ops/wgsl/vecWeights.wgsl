// A weight matrix for the mat-vec kernels, read by vector loads. By BITS: 2, 4 and 8 are affine groups (w = s*q + b), 16
// and 32 plain floats; with BLOCKS 2, 4 and 8 are codes of blocks (unitScales.wgsl). Everything is cut into units of 32 columns, which no group straddles; a unit is UNIT_LOADS loads.
// Offsets come in 32-bit words; scales and biases are addressed in 16-bit elements, [rows][cols / GROUP].
#include halves
#if BITS == 2
alias WeightLoad = vec2<u32>;
const LOAD_WORDS = 2u;
#else
alias WeightLoad = vec4<u32>;
const LOAD_WORDS = 4u;
#endif
const UNIT_LOADS = BITS / LOAD_WORDS;

@group(0) @binding(0) var<storage, read> weights: array<WeightLoad>;
@group(0) @binding(1) var<storage, read> halves: array<u32>; // the same buffer: scales and biases

fn half(index: u32) -> f32 { return halfOf(halves[index >> 1u], index); }
fn scaleWord(at: u32) -> u32 { return halves[at]; }
#include unitScales
#include codebook
