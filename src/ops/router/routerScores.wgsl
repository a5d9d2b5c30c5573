// Routers whose choice does not follow from the logits' order alone. A score is the softmax over all experts, or (SIGMOID)
// each logit's own sigmoid. The choice goes by score plus SELECTION_BIAS, among the experts of the GROUPS_USED best of GROUPS
// groups, a group being worth its two best; the weights are scores without the bias. `values` holds logits before this,
// and what the choice goes by after it: logits still where nothing is added to scores, since they have the same order
// without its rounding. A quad has one writer.
var<workgroup> scores: array<vec4<f32>, QUADS>;
#if GROUPS > 1
const GROUP_EXPERTS = EXPERTS / GROUPS;
const NOT_IN_GROUPS = -3.3e38; // behind every value
var<workgroup> groupValues: array<f32, GROUPS>;
#endif

fn choiceValue(ahead: u32, expert: u32) -> f32 {
#if SELECTION_BIAS
  return scoreOf(expert) + selectionBias[ahead * EXPERTS + expert];
#else
  return scoreOf(expert);
#endif
}

fn scoreOf(expert: u32) -> f32 { return scores[expert / 4u][expert % 4u]; }

fn scoreAll(ahead: u32, thread: u32) {
#if !SIGMOID
  var largest = vec4<f32>(-3.4e38);
  for (var quad = 0u; quad < QUADS; quad++) { largest = max(largest, values[quad]); }
  let top = max(max(largest.x, largest.y), max(largest.z, largest.w));
  var total = 0.0;
  for (var i = 0u; i < EXPERTS; i++) { total += exp(values[i / 4u][i % 4u] - top); }
  workgroupBarrier();
#endif
  for (var quad = thread; quad < QUADS; quad += WG) {
    let value = values[quad];
    var score = vec4<f32>();
    for (var c = 0u; c < 4u; c++) {
#if SIGMOID
      score[c] = sigmoid(value[c]);
#else
      score[c] = exp(value[c] - top) / total;
#endif
    }
    scores[quad] = score;
#if SELECTION_BIAS
    var chosenBy = value;
    for (var c = 0u; c < 4u; c++) {
      if (quad * 4u + c < EXPERTS) { chosenBy[c] = choiceValue(ahead, quad * 4u + c); }
    }
    values[quad] = chosenBy;
#endif
  }
  workgroupBarrier();
#if GROUPS > 1
  for (var group = thread; group < GROUPS; group += WG) {
    var best = -3.4e38;
    var second = -3.4e38;
    for (var i = group * GROUP_EXPERTS; i < (group + 1u) * GROUP_EXPERTS; i++) {
      let value = choiceValue(ahead, i);
      second = max(second, min(best, value));
      best = max(best, value);
    }
    groupValues[group] = best + select(0.0, second, GROUP_EXPERTS > 1u);
  }
  workgroupBarrier();
  for (var quad = thread; quad < QUADS; quad += WG) {
    var value = values[quad];
    for (var c = 0u; c < 4u; c++) {
      if (quad * 4u + c < EXPERTS) {
        let own = (quad * 4u + c) / GROUP_EXPERTS;
        var before = 0u;
        for (var group = 0u; group < GROUPS; group++) {
          let isBefore = groupValues[group] > groupValues[own] || (groupValues[group] == groupValues[own] && group < own);
          before += select(0u, 1u, isBefore);
        }
        if (before >= GROUPS_USED) { value[c] = NOT_IN_GROUPS; }
      }
    }
    values[quad] = value;
  }
  workgroupBarrier();
#endif
}

#if SELECTION_BIAS
// Those chosen by one order in the order of another: that of their weights, which is that of the logits from `row` on.
fn sortChosen(row: u32, thread: u32) {
  const OWN = (K + WG - 1u) / WG;
  var own: array<u32, OWN>;
  var place: array<u32, OWN>;
  for (var n = 0u; n < OWN; n++) {
    own[n] = chosen[min(thread + n * WG, K - 1u)];
    let value = logits[row + own[n]];
    var before = 0u;
    for (var i = 0u; i < K; i++) {
      let other = logits[row + chosen[i]];
      if (other > value || (other == value && chosen[i] < own[n])) { before++; }
    }
    place[n] = before;
  }
  workgroupBarrier();
  for (var n = 0u; n < OWN; n++) {
    if (thread + n * WG < K) { chosen[place[n]] = own[n]; }
  }
  workgroupBarrier();
}
#endif
