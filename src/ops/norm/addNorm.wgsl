// hidden += delta (ADD), then out = rms(hidden) * weight (VALUES), with HALVES as half floats for matrix units. One workgroup per
// token; a thread keeps its share of the row.
#include reduce
#if HALVES
#include halfBits
#endif
const EIGHTS = WIDTH / 8u;

@group(0) @binding(0) var<storage, read> weight: array<vec4<f32>>; // [width]
@group(0) @binding(1) var<storage, read_write> hidden: array<vec4<f32>>; // [tokens, width]
#if ADD
@group(0) @binding(2) var<storage, read> delta: array<vec4<f32>>; // [tokens, width]
#endif
#if VALUES
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>; // [tokens, width]
#endif
#if HALVES
@group(0) @binding(4) var<storage, read_write> halves: array<vec4<u32>>; // [tokens, width / 8]
#endif

@compute @workgroup_size(WG)
#include mainOfTeam
  let base = group.x * EIGHTS;
  var row: array<vec4<f32>, 2u * SHARE>;
  var squares = 0.0;
#for n SHARE
  if (thread + $(n)u * WG < EIGHTS) {
    let at = (base + thread + $(n)u * WG) * 2u;
    var low = hidden[at];
    var high = hidden[at + 1u];
#if ADD
    low += delta[at];
    high += delta[at + 1u];
    hidden[at] = low;
    hidden[at + 1u] = high;
#endif
    squares += dot(low, low) + dot(high, high);
    row[2u * $(n)u] = low;
    row[2u * $(n)u + 1u] = high;
  }
#endfor
  let scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) / f32(WIDTH) + EPS);
#for n SHARE
  if (thread + $(n)u * WG < EIGHTS) {
    let eight = thread + $(n)u * WG;
    let low = row[2u * $(n)u] * scale * weight[eight * 2u];
    let high = row[2u * $(n)u + 1u] * scale * weight[eight * 2u + 1u];
#if VALUES
    out[(base + eight) * 2u] = low;
    out[(base + eight) * 2u + 1u] = high;
#endif
#if HALVES
    halves[base + eight] = halvesOf(low, high);
#endif
  }
#endfor
}
