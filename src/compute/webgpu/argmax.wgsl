// The first index of the largest logit, in two passes: FIRST takes one range per workgroup, the second puts them together.
const WG = 256u;

struct Shape { count: u32, perGroup: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
#if FIRST
@group(0) @binding(1) var<storage, read> values: array<f32>; // [tokens, count]
@group(0) @binding(2) var<storage, read_write> out: array<vec2<u32>>; // [tokens, groups]: value as bits, index
#else
@group(0) @binding(1) var<storage, read> values: array<vec2<u32>>; // [tokens, count]
@group(0) @binding(2) var<storage, read_write> out: array<u32>; // [tokens]
#endif

var<workgroup> best: array<f32, WG>;
var<workgroup> bestAt: array<u32, WG>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  var value = -3.4e38;
  var at = 0xffffffffu;
#if FIRST
  let end = min(shape.count, (group.x + 1u) * shape.perGroup);
  for (var i = group.x * shape.perGroup + thread; i < end; i += WG) {
    let candidate = values[group.y * shape.count + i];
    if (candidate > value) { value = candidate; at = i; }
  }
#else
  for (var i = thread; i < shape.count; i += WG) {
    let pair = values[group.y * shape.count + i];
    let candidate = bitcast<f32>(pair.x);
    if (candidate > value || (candidate == value && pair.y < at)) { value = candidate; at = pair.y; }
  }
#endif
  best[thread] = value;
  bestAt[thread] = at;
  for (var half = WG / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      let other = best[thread + half];
      if (other > best[thread] || (other == best[thread] && bestAt[thread + half] < bestAt[thread])) {
        best[thread] = other;
        bestAt[thread] = bestAt[thread + half];
      }
    }
  }
  if (thread == 0u) {
#if FIRST
    out[group.y * grid.x + group.x] = vec2<u32>(bitcast<u32>(best[0]), bestAt[0]);
#else
    out[group.y] = select(bestAt[0], 0u, bestAt[0] == 0xffffffffu);
#endif
  }
}
