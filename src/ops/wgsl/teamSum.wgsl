// Sums over teams of TEAM threads, ROWS of them per team. A team is one or several whole subgroups, or just threads that
// meet in workgroup memory. After `teamStore` of all rows and a barrier, any thread may ask for any team's row.
const TEAMS = WG / TEAM;
#if SUBGROUPS
var<workgroup> teamScratch: array<f32, (ROWS + 1u) * 64u>; // [row][subgroup], subgroups have at least 4 lanes

fn teamStore(row: u32, value: f32, thread: u32, lane: u32, subgroupSize: u32) {
  let part = subgroupAdd(value);
  if (lane == 0u) { teamScratch[row * 64u + thread / subgroupSize] = part; }
}

fn teamSum(team: u32, row: u32, subgroupSize: u32) -> f32 {
  let count = TEAM / subgroupSize;
  var total = 0.0;
  for (var i = 0u; i < count; i++) { total += teamScratch[row * 64u + team * count + i]; }
  return total;
}
#else
var<workgroup> teamScratch: array<f32, (ROWS + 1u) * WG>; // [row][thread]

fn teamStore(row: u32, value: f32, thread: u32, lane: u32, subgroupSize: u32) { teamScratch[row * WG + thread] = value; }

fn teamSum(team: u32, row: u32, subgroupSize: u32) -> f32 {
  var total = 0.0;
  for (var i = 0u; i < TEAM; i++) { total += teamScratch[row * WG + team * TEAM + i]; }
  return total;
}
#endif
