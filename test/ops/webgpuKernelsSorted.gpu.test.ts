// What goes before and after products of experts on matrix units, which no emulated GPU has: pairs in sixteens by expert, half floats
// of activations, rows added up in that order. The products themselves are checked by src/lab/kernels/checkTensors.mjs, on a GPU that has them.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { swiGlu } from '#moeflux/ops/activation/reference.js'
import { halfGluOp } from '#moeflux/ops/matmul/halfRows.gpu.js'
import { combineOp } from '#moeflux/ops/moe/combine.gpu.js'
import {
  groupsBytes,
  groupTokensOp,
  maxTiles,
  mostPlaces,
  pairsAt,
  placesAt,
} from '#moeflux/ops/moe/groupTokens.gpu.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { fromHalves, HALVES } from '../support/gpu/halfRows.js'
import { expectClose, KERNEL } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'

const MISSING = 0xffffffff
const TILE = 64

describe('pairs for matrix units', () => {
  let arena: GpuArena
  beforeAll(async () => {
    arena = await GpuArena.open()
  })
  afterAll(() => arena.close())

  test('experts begin with a sixteen, at one place whoever is in slots; each pair is found again', async () => {
    const shapes = fc.record({ experts: fc.integer({ min: 1, max: 300 }), tokens: fc.integer({ min: 1, max: 60 }) })
    const property = fc.asyncProperty(shapes, fc.integer({ min: 1, max: 1e9 }), async ({ experts, tokens }, seed) => {
      const random = seededRandom(seed)
      const k = Math.min(experts, 4)
      const shape = { experts, k, maxTokens: 60, logitsStride: experts + 1, pairTile: 32, isPadded: true }
      // Some experts have most tokens, many have none.
      const choice = Uint32Array.from({ length: 60 * k }, () => Math.floor(random() ** 3 * experts))
      const slots = Uint32Array.from({ length: experts }, (_, i) => (random() < 0.3 ? MISSING : 1000 + i))
      const groups = arena.poisoned(groupsBytes(shape) / 4)
      const [step, table] = [arena.step(tokens), arena.put(slots)]
      const op = await groupTokensOp(arena.fast, shape, step, table, arena.put(choice), groups, 0, { tile: TILE })
      await arena.run(op, { tokens })
      const words = await arena.words(groups, groupsBytes(shape) / 4)
      const pairs = choice.subarray(0, tokens * k)
      const counts = new Array<number>(experts).fill(0)
      for (const expert of pairs) counts[expert]++
      const starts: number[] = []
      let end = 0
      for (const count of counts) {
        starts.push(end)
        end += Math.ceil(count / 16) * 16
      }
      expect(words[1]).toBe(end)
      expect(end).toBeLessThanOrEqual(mostPlaces(shape, tokens))
      const tiles = Array.from({ length: words[0] }, (_, i) => [...words.subarray(4 + i * 4, 7 + i * 4)])
      const wanted = counts.flatMap((count, expert) =>
        slots[expert] === MISSING
          ? []
          : Array.from({ length: Math.ceil(count / TILE) }, (_, i) => [
              ...[slots[expert], starts[expert] + i * TILE, Math.min(TILE, count - i * TILE)],
            ]),
      )
      expect(tiles).toEqual(wanted)
      expect(tiles.length).toBeLessThanOrEqual(maxTiles(shape, tokens, TILE))
      const seen = new Set<number>()
      for (const [pair, expert] of pairs.entries()) {
        if (slots[expert] === MISSING) continue
        const place = words[placesAt(shape) + pair]
        expect(words[pairsAt(shape) + place]).toBe(pair)
        expect(place - starts[expert]).toBeGreaterThanOrEqual(0)
        expect(place - starts[expert]).toBeLessThan(counts[expert])
        seen.add(place)
      }
      expect(seen.size).toBe(pairs.filter(expert => slots[expert] !== MISSING).length)
    })
    await fc.assert(property, { numRuns: 8, examples: [[{ experts: 300, tokens: 60 }, 1]] })
  })

  test('activations become half floats for the rows of the list alone; rows are added up from their places', async () => {
    const random = seededRandom(5)
    const [width, rows, listed] = [24, 7, 5]
    const gateUp = randomFloats(random, rows * 2 * width, 5)
    gateUp[2 * width + 3] = Number.NaN
    const packed = arena.put(new Uint32Array((rows * width) / 2).fill(0x7e017e01)) // halves that are NaN
    const groups = arena.put(Uint32Array.of(0, listed, 0, 0))
    const list = { groups, rows: () => rows }
    const op = await halfGluOp(arena.fast, arena.put(gateUp), packed, width, { kind: 'silu' }, list)
    await arena.run(op, { tokens: 1 })
    const halves = fromHalves(await arena.words(packed, (rows * width) / 2))
    for (let row = 0; row < rows; row++) {
      const pair = gateUp.subarray(row * 2 * width, (row + 1) * 2 * width)
      const want = swiGlu(pair.subarray(0, width), pair.subarray(width))
      const got = halves.subarray(row * width, (row + 1) * width)
      if (row >= listed) expect([...got].every(Number.isNaN), 'nobody writes there').toBe(true)
      else if (row === 1) expect([...got].map(Number.isNaN)).toEqual([...want].map(Number.isNaN))
      else expectClose(got, want, HALVES, 'halves')
    }

    const shape = { experts: 2, k: 2, maxTokens: 2, logitsStride: 3, pairTile: 32, isPadded: true }
    const places = [17, 3, 0, 16]
    const words = new Uint32Array(groupsBytes(shape) / 4).fill(MISSING)
    words.set(places, placesAt(shape))
    const expertRows = randomFloats(random, 32 * width)
    const weights = [0.5, 0.25, 2, 0]
    expertRows.fill(Number.NaN, 16 * width, 17 * width) // its rank has no weight: it was computed elsewhere
    const mixing = arena.put(new Float32Array(weights.flatMap(weight => [0, weight])))
    const out = arena.poisoned(2 * width)
    const from = { expertRows: arena.put(expertRows), mixing, sharedRows: out, logits: out, out }
    const sum = await combineOp(arena.fast, shape, 'none', from, width, { groups: arena.put(words) })
    await arena.run(sum, { tokens: 2 })
    const want = Float32Array.from({ length: 2 * width }, (_, i) => {
      const [pair, column] = [Math.floor(i / width) * 2, i % width]
      return [pair, pair + 1].reduce(
        (all, at) => (weights[at] === 0 ? all : all + weights[at] * expertRows[places[at] * width + column]),
        0,
      )
    })
    expectClose(await arena.floats(out, 2 * width), want, KERNEL, 'combine')
  })
})
