// The sum over a workgroup of WG threads, the same value in every thread. With subgroups the first level needs no
// memory; both forms add in a fixed order.
#if SUBGROUPS
var<workgroup> reduceScratch: array<f32, 64>;

fn workgroupSum(value: f32, thread: u32, lane: u32, subgroupSize: u32) -> f32 {
  let part = subgroupAdd(value);
  workgroupBarrier();
  if (lane == 0u) { reduceScratch[thread / subgroupSize] = part; }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < (WG + subgroupSize - 1u) / subgroupSize; i++) { total += reduceScratch[i]; }
  return total;
}
#else
var<workgroup> reduceScratch: array<f32, WG>;

fn workgroupSum(value: f32, thread: u32, lane: u32, subgroupSize: u32) -> f32 {
  workgroupBarrier();
  reduceScratch[thread] = value;
  workgroupBarrier();
  // Two levels: sixteen values each, then the sums of those.
  if (thread < (WG + 15u) / 16u) {
    var part = 0.0;
    for (var i = 0u; i < 16u; i++) {
      let at = thread * 16u + i;
      if (at < WG) { part += reduceScratch[at]; }
    }
    reduceScratch[thread * 16u] = part;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < (WG + 15u) / 16u; i++) { total += reduceScratch[i * 16u]; }
  return total;
}
#endif
