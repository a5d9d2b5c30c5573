// Experts on matrix units against sums in float64: some without tokens, some with more than a tile, a prompt's tokens alone and
// among others, one that is not finite. `tools`: a GPU and how to use it.
import { difference } from './difference.mjs'
import { lay, randomMatrix } from './randomMatrices.mjs'

const MISSING = 2 // an expert that is in no slot
const SIZES = { hidden: 1024, width: 512, group: 64, experts: 24, k: 3, counts: [1, 40, 300], most: 512 }

export async function checkExperts(tools, sizes = SIZES) {
  const { gpu, put, run, read, step, random, matVec, report } = tools
  const { hidden: HIDDEN, width: WIDTH, group: GROUP, experts: EXPERTS, k: K, counts, most } = sizes
  const { activationBuffers } = await tools.load('gpu/memory/activationBuffers.js')
  const { combineOp } = await tools.load('ops/moe/combine.gpu.js')
  const { groupsBytes, groupTokensOp, maxTiles, mostPlaces, pairsAt } = await tools.load('ops/moe/groupTokens.gpu.js')
  const { halfGluOp, halfRowsOp } = await tools.load('ops/matmul/halfRows.gpu.js')
  const { areForTensors, EXPERT_TILES, tensorExpertsOp } = await tools.load('ops/moe/tensorExperts.gpu.js')
  const [tile, ...otherTiles] = sizes.tiles ?? EXPERT_TILES
  const experts = Array.from({ length: EXPERTS }, () => {
    const [gate, up, down] = [
      randomMatrix(random, WIDTH, HIDDEN, GROUP),
      randomMatrix(random, WIDTH, HIDDEN, GROUP),
      randomMatrix(random, HIDDEN, WIDTH, GROUP),
    ]
    return { gate, up, down, ...lay([gate, up, down]) }
  })
  const stride = experts[0].bytes.length
  const slots = new Uint8Array(EXPERTS * stride)
  for (const [i, { bytes }] of experts.entries()) slots.set(bytes, (EXPERTS - 1 - i) * stride) // slots are not experts
  const pool = { generation: 0, buffer: put(slots) }
  const format = { bits: 4, group: GROUP, f16: false }
  const [gate, up, down] = experts[0].places.map((place, i) => ({
    ...place,
    ...{ format, out: i === 1 ? WIDTH : 0, rows: i === 2 ? HIDDEN : WIDTH, cols: i === 2 ? WIDTH : HIDDEN },
  }))
  if (!areForTensors(gpu, { stride, gate, up, down })) throw new Error('not for matrix units')
  const table = put(Uint32Array.from({ length: EXPERTS }, (_, i) => (i === MISSING ? 0xffffffff : EXPERTS - 1 - i)))

  for (const tokens of counts) {
    const x = Float32Array.from({ length: tokens * HIDDEN }, () => (random() * 2 - 1) * 3)
    // Most go to a few experts; one of them is not in a slot, and its rank has no weight.
    const choice = Array.from({ length: tokens }, () => {
      const chosen = new Set()
      while (chosen.size < K) chosen.add(Math.floor(random() ** 3 * EXPERTS))
      return [...chosen]
    }).flat()
    const weights = choice.map(expert => (expert === MISSING ? 0 : random()))
    const got = await mlp(x, choice, weights, tokens)
    const others = []
    for (const other of otherTiles) others.push(await mlp(x, choice, weights, tokens, other))
    const last = tokens - 1
    const alone = await mlp(x.subarray(last * HIDDEN), choice.slice(last * K), weights.slice(last * K), 1)
    let worst = 0
    for (const token of new Set([0, tokens >> 1, last]))
      worst = Math.max(worst, difference(rowOf(got, token), want(token)))
    const same = (a, b) => a.every((value, i) => Object.is(value, b[i]))
    const problem = !others.every(again => same(got, again))
      ? 'differs from run to run, or by tile'
      : same(rowOf(got, last), alone)
        ? ''
        : 'depends on others'
    report(`experts of ${tokens} tokens`, worst, problem)
    if (tokens === 1) continue
    x[HIDDEN + 7] = Number.NaN
    const wrong = await mlp(x, choice, weights, tokens)
    const kept = Array.from({ length: tokens }, (_, t) => t).filter(t => t !== 1)
    const isKept = kept.every(t => same(rowOf(wrong, t), rowOf(got, t)))
    const isSeen = rowOf(wrong, 1).every(Number.isNaN)
    report(`experts of ${tokens} tokens, one of them NaN`, 0, isKept && isSeen ? '' : `kept ${isKept}, seen ${isSeen}`)

    function want(token) {
      const sum = new Float32Array(HIDDEN)
      for (let rank = 0; rank < K; rank++) {
        const pair = token * K + rank
        if (weights[pair] === 0) continue
        const { gate, up, down } = experts[choice[pair]]
        const row = x.subarray(token * HIDDEN, (token + 1) * HIDDEN)
        const [g, u] = [matVec(gate, row), matVec(up, row)]
        const y = matVec(
          down,
          g.map((value, i) => (value / (1 + Math.exp(-value))) * u[i]),
        )
        for (const [i, value] of y.entries()) sum[i] += weights[pair] * value
      }
      return sum
    }
  }

  function rowOf(rows, token) {
    return rows.subarray(token * HIDDEN, (token + 1) * HIDDEN)
  }

  async function mlp(x, choice, weights, tokens, own = tile) {
    const shape = { experts: EXPERTS, k: K, maxTokens: most, logitsStride: EXPERTS + 1, pairTile: 32, isPadded: true }
    const places = mostPlaces(shape, most)
    const input = activationBuffers(gpu, most, HIDDEN, 'x')
    const act = activationBuffers(gpu, places, WIDTH, 'act')
    const poisoned = words => put(new Uint32Array(words).fill(0x7fc5a5a5))
    const [gateUp, rows, groups] = [
      poisoned(places * 2 * WIDTH),
      poisoned(places * HIDDEN),
      poisoned(groupsBytes(shape) / 4),
    ]
    gpu.device.queue.writeBuffer(input.values, 0, x)
    const common = { tile: own, groups, pairsAt: pairsAt(shape), slotStride: stride, label: 'check' }
    const options = { ...common, maxTiles: count => maxTiles(shape, count, own.pairs) }
    const inner = { ...options, outStride: 2 * WIDTH, pairsPerRow: K, gathers: true }
    const outer = { ...options, outStride: HIDDEN, pairsPerRow: 1, gathers: false }
    const listed = { groups, rows: count => mostPlaces(shape, count) }
    const mixing = put(new Uint32Array(new Float32Array(weights.flatMap(weight => [0, weight])).buffer))
    const out = poisoned(tokens * HIDDEN)
    const ops = [
      groupTokensOp(gpu, shape, step(tokens), table, put(Uint32Array.from(choice)), groups, 0, { tile: own.pairs }),
      halfRowsOp(gpu, input, HIDDEN),
      tensorExpertsOp(gpu, pool, format, HIDDEN, [gate, up], input.packed, gateUp, inner),
      halfGluOp(gpu, gateUp, act.packed, WIDTH, { kind: 'silu' }, listed),
      tensorExpertsOp(gpu, pool, format, WIDTH, [down], act.packed, rows, outer),
      combineOp(gpu, shape, 'none', { expertRows: rows, mixing, sharedRows: rows, logits: rows, out }, HIDDEN, {
        groups,
      }),
    ]
    for (const op of await Promise.all(ops)) await run(op, tokens)
    const got = await read(out, tokens * HIDDEN)
    for (const buffer of [gateUp, rows, groups, out, ...Object.values(input), ...Object.values(act)]) buffer.destroy()
    return got
  }
}
