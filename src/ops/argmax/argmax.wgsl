// The first index of the largest logit, in two passes: FIRST takes one range per workgroup, the second puts them together.
// NOT_FINITE where a logit, or a value of the row that the logits were made of, is NaN or infinite. Bits are looked at
// because shaders may be compiled as if there were no such values.
#include finite
const WG = 256u;
const NOT_FINITE = 0xffffffffu;

struct Shape { count: u32, perGroup: u32, width: u32, pad: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
#if FIRST
@group(0) @binding(1) var<storage, read> values: array<f32>; // [tokens, count]
@group(0) @binding(2) var<storage, read_write> out: array<vec3<u32>>; // [tokens, groups]: value as bits, index, not finite
#else
@group(0) @binding(1) var<storage, read> values: array<vec3<u32>>; // [tokens, count]
@group(0) @binding(2) var<storage, read> source: array<u32>; // [tokens, width]: floats as bits
@group(0) @binding(3) var<storage, read_write> out: array<u32>; // [tokens, OUT_STRIDE]
#endif

var<workgroup> best: array<f32, WG>;
var<workgroup> bestAt: array<u32, WG>;
var<workgroup> wrong: array<u32, WG>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  var value = -3.4e38;
  var at = 0xffffffffu;
  var isWrong = 0u;
#if FIRST
  let end = min(shape.count, (group.x + 1u) * shape.perGroup);
  for (var i = group.x * shape.perGroup + thread; i < end; i += WG) {
    let candidate = values[group.y * shape.count + i];
    isWrong |= notFinite(bitcast<u32>(candidate));
    if (candidate > value) { value = candidate; at = i; }
  }
#else
  for (var i = thread; i < shape.count; i += WG) {
    let range = values[group.y * shape.count + i];
    let candidate = bitcast<f32>(range.x);
    isWrong |= range.z;
    if (candidate > value || (candidate == value && range.y < at)) { value = candidate; at = range.y; }
  }
  for (var i = thread; i < shape.width; i += WG) { isWrong |= notFinite(source[group.y * shape.width + i]); }
#endif
  best[thread] = value;
  bestAt[thread] = at;
  wrong[thread] = isWrong;
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      wrong[thread] |= wrong[thread + half];
      let other = best[thread + half];
      if (other > best[thread] || (other == best[thread] && bestAt[thread + half] < bestAt[thread])) {
        best[thread] = other;
        bestAt[thread] = bestAt[thread + half];
      }
    }
  }
  if (thread == 0u) {
#if FIRST
    out[group.y * grid.x + group.x] = vec3<u32>(bitcast<u32>(best[0]), bestAt[0], wrong[0]);
#else
    let winner = select(bestAt[0], 0u, bestAt[0] == 0xffffffffu);
    out[group.y * OUT_STRIDE] = select(winner, NOT_FINITE, wrong[0] != 0u);
#endif
  }
}
