// The head of an entry point whose threads sum together (reduce.wgsl, teamSum.wgsl): it is open, the body follows the include.
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
#if SUBGROUPS
  @builtin(subgroup_invocation_id) lane: u32,
  @builtin(subgroup_size) subgroupSize: u32,
#endif
) {
#if !SUBGROUPS
  let lane = 0u;
  let subgroupSize = 1u;
#endif
