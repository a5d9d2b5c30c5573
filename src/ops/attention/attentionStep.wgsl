// Attention of single tokens, or of a few of a run: queries and keys by norm and RoPE, the key and the value into their page, and
// softmax attention over one of SPLITS ranges of what the token sees, which attentionReduce puts together. One workgroup per
// HEADS_TILE heads of one kv head, token, and range. Keys of the step's own tokens are never read from pages, where other workgroups are about to write
// them: each workgroup makes those that it needs by itself (FRESH: as many as a run has at most). Tiles of TILE positions lie at absolute multiples, and a masked position adds
// exactly nothing, so a token's result does not depend on the tokens beside it. WINDOW: a token sees that many positions, its
// own the last of them; 0: all. FIRST_ROW: what is before a token's firstRow was never written.
#include step
#include rope
const HEADS_PER_KV = HEADS / KV_HEADS;
const QUADS = HEAD_DIM / 4u;
const KV_QUADS = KV_HEADS * QUADS;
const SHARE = 16u; // threads that sum a head's squares
// Values: SPAN threads take a column together, GROUPS of them different columns, CHUNK of which a thread loads at once.
const SPAN = min(QUADS, WG);
const OWNED = (QUADS + SPAN - 1u) / SPAN;
const GROUPS = min(WG / SPAN, TILE);
const COLUMNS = (TILE + GROUPS - 1u) / GROUPS; // of a tile that a group takes
const CHUNK = min(COLUMNS, 8u);

@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(4) var<storage, read> pageTable: array<u32>;
@group(0) @binding(5) var<storage, read_write> pages: array<vec4<f32>>; // [pages][key, value][PAGE_TOKENS][kvHeads * headDim]
@group(0) @binding(6) var<storage, read_write> parts: array<vec4<f32>>; // [tokens, heads, SPLITS]: headDim values; largest score, sum, ranges

var<workgroup> q: array<vec4<f32>, HEADS_TILE * QUADS>;
var<workgroup> fresh: array<vec4<f32>, FRESH * QUADS>; // keys, this token's first, then those of the tokens before it
var<workgroup> partScores: array<f32, PARTS * HEADS_TILE * TILE>; // [part][row][column]
var<workgroup> scores: array<f32, HEADS_TILE * TILE>;
var<workgroup> weights: array<f32, HEADS_TILE * TILE>;
var<workgroup> rowMax: array<f32, HEADS_TILE>;
var<workgroup> nextMax: array<f32, HEADS_TILE>;
var<workgroup> rowScale: array<f32, HEADS_TILE>;
var<workgroup> rowSum: array<f32, HEADS_TILE>;
#if QK_NORM
var<workgroup> squares: array<f32, (HEADS_TILE + FRESH) * SHARE>;
var<workgroup> normScale: array<f32, HEADS_TILE + FRESH>;
#endif

// Where a head lies: the queries first, then the keys of this token and of those before it.
fn headAt(token: u32, firstHead: u32, row: u32) -> u32 {
  if (row < HEADS_TILE) { return token * IN_STRIDE + (firstHead + row) * Q_STRIDE; }
  return (token + HEADS_TILE - row) * IN_STRIDE + K_AT + firstHead / HEADS_PER_KV * HEAD_DIM;
}

fn rotatedQuad(token: u32, at: u32, quad: u32, row: u32) -> vec4<f32> {
#if QK_NORM
  let scale = normScale[row];
#else
  const scale = 1.0;
#endif
  let norm = select(0u, HEAD_DIM, row >= HEADS_TILE);
  let i = quad * 4u;
  return vec4<f32>(
    rotated(token, at, i, scale, norm), rotated(token, at, i + 1u, scale, norm),
    rotated(token, at, i + 2u, scale, norm), rotated(token, at, i + 3u, scale, norm));
}

fn valueAt(token: u32, kvHead: u32, quad: u32) -> vec4<f32> {
  let at = token * IN_STRIDE + V_AT + kvHead * HEAD_DIM + quad * 4u;
  return vec4<f32>(inputs[at], inputs[at + 1u], inputs[at + 2u], inputs[at + 3u]);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let token = group.y;
  let firstHead = group.x * HEADS_TILE;
  let kvHead = firstHead / HEADS_PER_KV;
  let info = tokens[token];
  let own = info.position;
  let firstFresh = own - info.index;
  let tiles = own / TILE + 1u;
#if FIRST_ROW
  let oldest = info.firstRow / TILE;
  let firstSeen = info.firstRow;
#elif WINDOW > 0
  let firstSeen = select(own + 1u - WINDOW, 0u, own + 1u < WINDOW);
  let oldest = firstSeen / TILE;
#else
  const oldest = 0u;
  const firstSeen = 0u;
#endif
  let perSplit = (tiles - oldest + SPLITS - 1u) / SPLITS;
  let firstTile = oldest + group.z * perSplit;
  if (firstTile >= tiles) { return; }
  let endTile = min(firstTile + perSplit, tiles);
  let rows = HEADS_TILE + 1u + info.index;
#if QK_NORM
  for (var i = thread; i < rows * SHARE; i += WG) {
    let at = headAt(token, firstHead, i / SHARE);
    var sum = 0.0;
    for (var n = i % SHARE; n < HEAD_DIM; n += SHARE) { sum += inputs[at + n] * inputs[at + n]; }
    squares[i] = sum;
  }
  workgroupBarrier();
  for (var row = thread; row < rows; row += WG) {
    var sum = 0.0;
    for (var n = 0u; n < SHARE; n++) { sum += squares[row * SHARE + n]; }
    normScale[row] = inverseSqrt(sum / f32(HEAD_DIM) + EPS);
  }
  workgroupBarrier();
#endif
  for (var i = thread; i < rows * QUADS; i += WG) {
    let row = i / QUADS;
    let source = select(token, token + HEADS_TILE - row, row >= HEADS_TILE);
    let value = rotatedQuad(source, headAt(token, firstHead, row), i % QUADS, row);
    if (row < HEADS_TILE) { q[i] = value; }
    else { fresh[i - HEADS_TILE * QUADS] = value; }
  }
  for (var row = thread; row < HEADS_TILE; row += WG) {
    rowMax[row] = -1e30;
    rowSum[row] = 0.0;
  }
  workgroupBarrier();
  let columnGroup = thread / SPAN;
  let firstColumn = columnGroup * COLUMNS;
  var sums: array<vec4<f32>, HEADS_TILE * OWNED>;
  for (var tile = firstTile; tile < endTile; tile++) {
    let position = tile * TILE;
    let page = pageTable[info.pages + position / PAGE_TOKENS];
    let keys = ((page * 2u) * PAGE_TOKENS + position % PAGE_TOKENS) * KV_QUADS + kvHead * QUADS;
    let values = keys + PAGE_TOKENS * KV_QUADS;
    // Values are on their way while the scores are computed.
    var v: array<vec4<f32>, CHUNK * OWNED>;
    for (var n = 0u; n < CHUNK * OWNED; n++) {
      v[n] = valueQuad(token, kvHead, values, position, firstColumn + n / OWNED, Seen(firstSeen, firstFresh, own), thread % SPAN + n % OWNED * SPAN);
    }
    // Scores: a thread takes every PARTS-th quad of a key, against all rows.
    for (var i = thread; i < PARTS * TILE; i += WG) {
      let part = i % PARTS;
      let column = i / PARTS;
      let at = min(position + column, own);
      var totals = array<f32, HEADS_TILE>(); // said aloud: Dawn clears a variable without a value once, not each time around a loop
      for (var d = part; d < QUADS; d += 8u * PARTS) {
        var k: array<vec4<f32>, 8>;
        if (at >= firstFresh) {
          for (var n = 0u; n < 8u; n++) { k[n] = fresh[(own - at) * QUADS + min(d + n * PARTS, QUADS - 1u)]; }
        } else {
          for (var n = 0u; n < 8u; n++) { k[n] = pages[keys + column * KV_QUADS + min(d + n * PARTS, QUADS - 1u)]; }
        }
        for (var n = 0u; n < 8u; n++) {
          if (d + n * PARTS < QUADS) {
            for (var row = 0u; row < HEADS_TILE; row++) { totals[row] += dot(q[row * QUADS + d + n * PARTS], k[n]); }
          }
        }
      }
      for (var row = 0u; row < HEADS_TILE; row++) { partScores[(part * HEADS_TILE + row) * TILE + column] = totals[row]; }
    }
    workgroupBarrier();
    for (var i = thread; i < HEADS_TILE * TILE; i += WG) {
      var score = 0.0;
      for (var part = 0u; part < PARTS; part++) { score += partScores[part * HEADS_TILE * TILE + i]; }
      let at = position + i % TILE;
      scores[i] = select(-1e30, score * SCALE, at <= own && at >= firstSeen);
    }
    workgroupBarrier();
    // Every thread of a row finds the row's largest score by itself: reading is cheaper than meeting.
    for (var i = thread; i < HEADS_TILE * TILE; i += WG) {
      let row = i / TILE;
      let before = rowMax[row];
      var largest = before;
      for (var c = 0u; c < TILE; c++) { largest = max(largest, scores[row * TILE + c]); }
      weights[i] = select(exp(scores[i] - largest), 0.0, scores[i] <= -1e30);
      if (i % TILE == 0u) {
        nextMax[row] = largest;
        rowScale[row] = exp(before - largest);
      }
    }
    workgroupBarrier();
    for (var row = thread; row < HEADS_TILE; row += WG) {
      var total = 0.0;
      for (var c = 0u; c < TILE; c++) { total += weights[row * TILE + c]; }
      rowSum[row] = rowSum[row] * rowScale[row] + total;
      rowMax[row] = nextMax[row];
    }
    for (var n = 0u; n < HEADS_TILE * OWNED; n++) { sums[n] *= rowScale[n / OWNED]; }
    for (var first = 0u; first < COLUMNS; first += CHUNK) {
      for (var n = 0u; n < CHUNK; n++) {
        let column = firstColumn + first + n;
        if (first + n < COLUMNS && column < TILE) {
          for (var row = 0u; row < HEADS_TILE; row++) {
            let weight = weights[row * TILE + column];
            for (var o = 0u; o < OWNED; o++) { sums[row * OWNED + o] += weight * v[n * OWNED + o]; }
          }
        }
      }
      if (first + CHUNK < COLUMNS) {
        for (var n = 0u; n < CHUNK * OWNED; n++) {
          v[n] = valueQuad(token, kvHead, values, position, firstColumn + first + CHUNK + n / OWNED, Seen(firstSeen, firstFresh, own), thread % SPAN + n % OWNED * SPAN);
        }
      }
    }
  }
  // The groups' sums one after the other, through memory that nobody needs any more.
  for (var other = 1u; other < GROUPS; other++) {
    workgroupBarrier();
    if (columnGroup == other) {
      for (var n = 0u; n < HEADS_TILE * OWNED; n++) {
        let quad = thread % SPAN + n % OWNED * SPAN;
        if (quad < QUADS) { q[n / OWNED * QUADS + quad] = sums[n]; }
      }
    }
    workgroupBarrier();
    if (columnGroup == 0u) {
      for (var n = 0u; n < HEADS_TILE * OWNED; n++) {
        sums[n] += q[n / OWNED * QUADS + min(thread % SPAN + n % OWNED * SPAN, QUADS - 1u)];
      }
    }
  }
  for (var n = 0u; n < HEADS_TILE * OWNED; n++) {
    let quad = thread % SPAN + n % OWNED * SPAN;
    if (columnGroup == 0u && quad < QUADS) { parts[partAt(token, firstHead + n / OWNED, group.z) + quad] = sums[n]; }
  }
  for (var row = thread; row < HEADS_TILE; row += WG) {
    let ranges = f32((tiles - oldest + perSplit - 1u) / perSplit);
    parts[partAt(token, firstHead + row, group.z) + QUADS] = vec4<f32>(rowMax[row], rowSum[row], ranges, 0.0);
  }
  // The first workgroup of the last range writes the token's own key and value.
  if (firstHead % HEADS_PER_KV == 0u && endTile == tiles) {
    let page = pageTable[info.pages + own / PAGE_TOKENS];
    let at = ((page * 2u) * PAGE_TOKENS + own % PAGE_TOKENS) * KV_QUADS + kvHead * QUADS;
    for (var quad = thread; quad < QUADS; quad += WG) {
      pages[at + quad] = fresh[quad];
      pages[at + PAGE_TOKENS * KV_QUADS + quad] = valueAt(token, kvHead, quad);
    }
  }
}

// What may be asked for of a tile: positions from firstSeen to own; those from firstFresh on are not in pages.
struct Seen { firstSeen: u32, firstFresh: u32, own: u32 }

// Beside what is seen, rows may hold anything, and 0 times anything may be NaN: another row is taken there.
fn valueQuad(token: u32, kvHead: u32, values: u32, position: u32, column: u32, seen: Seen, wanted: u32) -> vec4<f32> {
  let quad = min(wanted, QUADS - 1u);
  let at = clamp(position + min(column, TILE - 1u), max(position, seen.firstSeen), seen.own);
  if (at >= seen.firstFresh) { return valueAt(token + at - seen.own, kvHead, quad); }
  return pages[values + (at - position) * KV_QUADS + quad];
}

fn partAt(token: u32, head: u32, split: u32) -> u32 { return ((token * HEADS + head) * SPLITS + split) * (QUADS + 1u); }
