// Several matrices of one format and one input, computed by one dispatch. A workgroup finds its matrix by its tile.
struct Segment {
  firstTile: u32,
  rows: u32,
  weight: u32, // in 32-bit words
  scales: u32, // in 16-bit elements
  biases: u32, // in 16-bit elements
  out: u32, // column of the output row
  norm: u32, // which of several norms its input goes through
  bias: u32, // of an expert, in floats from the start of its slot
}
struct Segments {
  cols: u32,
  count: u32,
  outStride: u32,
  expertWords: u32, // 32-bit words from one expert slot to the next
  pad0: u32,
  pad1: u32,
  pad2: u32,
  pad3: u32,
  list: array<Segment, 6>,
}

fn segmentOf(tile: u32) -> u32 {
#if SINGLE
  return 0u;
#else
  var index = 0u;
  for (var i = 1u; i < segments.count; i++) {
    if (tile >= segments.list[i].firstTile) { index = i; }
  }
  return index;
#endif
}
