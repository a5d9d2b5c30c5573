// The expert store of the reference backend over files that are never there.
import { describe, expect, test } from 'vitest'
import { ExpertStore } from '#moeflux/experts/expertStore.js'
import type { ExpertFiles } from '#moeflux/files/packed/packedModel.js'
import type { ByteSource } from '#moeflux/files/source.js'

const SIZE = 64

/** Every expert's record is filled with its own number; reads end one at a time, in order. */
function setUp(slots: number) {
  const reads: string[] = []
  let underWay = 0
  let most = 0
  const file = (layer: number): ByteSource => ({
    name: `layer ${layer}`,
    size: 100 * SIZE,
    close: async () => {},
    read: async (offset, target) => {
      reads.push(`${layer}/${offset / SIZE}`)
      most = Math.max(most, ++underWay)
      await new Promise(resolve => setImmediate(resolve))
      underWay--
      target.fill(offset / SIZE)
    },
  })
  const experts = { layout: { expertSize: SIZE }, files: [file(0), file(1)] } as unknown as ExpertFiles
  const store = new ExpertStore(experts, { layers: 2, experts: 100, slots }, record => record[0])
  const take = async (layer: number, wanted: readonly number[]) => {
    reads.length = 0
    const got: number[] = []
    for await (const [expert, value] of store.take(layer, wanted)) {
      expect(value).toBe(expert)
      expect(store.stats.expertSlotsUsed).toBeLessThanOrEqual(slots)
      got.push(expert)
    }
    return got
  }
  return { store, take, reads, mostAtOnce: () => most }
}

describe('the expert store', () => {
  test('gives what is there first, reads the rest, and keeps the most recently used', async () => {
    const { take, reads, store } = setUp(3)
    expect(await take(0, [1, 2, 3])).toEqual([1, 2, 3])
    expect(reads).toEqual(['0/1', '0/2', '0/3'])
    expect(await take(0, [1, 4])).toEqual([1, 4]) // 2 is now the oldest and goes
    expect(reads).toEqual(['0/4'])
    expect(await take(0, [2, 3])).toEqual([3, 2])
    expect(reads).toEqual(['0/2'])
    expect(store.stats).toMatchObject({ expertHits: 2, expertMisses: 5 })
    expect(store.reads).toMatchObject({ reads: 5, bytes: 5 * SIZE, retries: 0 })
  })

  test('experts of two layers are two experts', async () => {
    const { take, reads } = setUp(4)
    await take(0, [1])
    await take(1, [1])
    expect(reads).toEqual(['1/1'])
  })

  test('a layer that wants more than fits is served, each expert read once, eight at a time', async () => {
    const wanted = Array.from({ length: 40 }, (_, i) => i)
    for (const [slots, atOnce] of [
      [1, 1],
      [2, 2],
      [20, 8],
    ]) {
      const { take, reads, mostAtOnce } = setUp(slots)
      expect(await take(0, wanted)).toEqual(wanted)
      expect(reads.length).toBe(40)
      expect(mostAtOnce()).toBe(atOnce)
    }
  })

  test('whoever stops taking leaves nothing behind', async () => {
    const { store, reads } = setUp(4)
    for await (const [expert] of store.take(0, [5, 6, 7])) {
      expect(expert).toBe(5)
      break
    }
    const signal = AbortSignal.abort(new Error('stopped'))
    await expect(store.take(0, [9], signal).next()).rejects.toThrow('stopped')
    await store.close()
    expect(reads.length).toBe(4)
    await expect(store.take(0, [9]).next()).rejects.toMatchObject({ code: 'CLOSED' })
  })
})
