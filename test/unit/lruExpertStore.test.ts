// The simple expert store over files that are never there.
import { describe, expect, test } from 'vitest'
import { LruExpertStore } from '#moeflux/experts/lruExpertStore.js'
import type { ByteSource } from '#moeflux/storage/byteSource.js'
import type { ExpertFiles } from '#moeflux/storage/packedModel.js'

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
  const store = new LruExpertStore(experts, slots, record => record[0])
  const take = async (layer: number, wanted: readonly number[]) => {
    reads.length = 0
    const got: number[] = []
    for await (const [expert, value] of store.take(layer, wanted)) {
      expect(value).toBe(expert)
      expect(store.slotsUsed).toBeLessThanOrEqual(slots)
      got.push(expert)
    }
    return got
  }
  return { store, take, reads, mostAtOnce: () => most }
}

describe('the simple expert store', () => {
  test('gives what is there first, reads the rest, and keeps the most recently used', async () => {
    const { take, reads, store } = setUp(3)
    expect(await take(0, [1, 2, 3])).toEqual([1, 2, 3])
    expect(reads).toEqual(['0/1', '0/2', '0/3'])
    expect(await take(0, [1, 4])).toEqual([1, 4]) // 2 is now the oldest and goes
    expect(reads).toEqual(['0/4'])
    expect(await take(0, [2, 3])).toEqual([3, 2])
    expect(reads).toEqual(['0/2'])
    expect(store.counters).toMatchObject({ hits: 2, misses: 5, bytesRead: 5 * SIZE })
  })

  test('experts of two layers are two experts', async () => {
    const { take, reads } = setUp(4)
    await take(0, [1])
    await take(1, [1])
    expect(reads).toEqual(['1/1'])
  })

  test('a layer that wants more than fits is served, each expert read once, eight at a time', async () => {
    const { take, reads, mostAtOnce } = setUp(2)
    const wanted = Array.from({ length: 40 }, (_, i) => i)
    expect(await take(0, wanted)).toEqual(wanted)
    expect(reads.length).toBe(40)
    expect(mostAtOnce()).toBe(8)
  })

  test('whoever stops taking leaves nothing behind', async () => {
    const { store, reads } = setUp(4)
    for await (const [expert] of store.take(0, [5, 6, 7])) {
      expect(expert).toBe(5)
      break
    }
    await store.drain()
    expect(reads.length).toBe(3)
    expect(store.slotsUsed).toBe(0)
    const signal = AbortSignal.abort(new Error('stopped'))
    await expect(store.take(0, [9], signal).next()).rejects.toThrow('stopped')
  })
})
