// Which of several models are in memory, and who waits for what. The models are pretended ones.
import { describe, expect, test } from 'vitest'
import { type Lease, ModelShelf, type ShelfOptions } from '#moeflux/apps/server/modelPool.js'
import { seededRandom } from '../../support/random.js'

class Pretended {
  hasFailed = false
  constructor(
    readonly id: string,
    private readonly world: World,
  ) {}
  async close() {
    await this.world.pause()
    this.world.inMemory.delete(this.id)
  }
}

class World {
  readonly inMemory = new Set<string>()
  most = 0
  readonly events: string[] = []
  onLoad: (id: string) => void = () => {}
  /** A place for everything else to happen. */
  pause = () => new Promise<void>(resolve => setImmediate(resolve))

  shelf(ids: readonly string[], options: Partial<ShelfOptions> = {}, pinned: readonly string[] = []) {
    const load = async (id: string) => {
      await this.pause()
      this.onLoad(id)
      if (this.inMemory.has(id)) throw new Error(`${id} is in memory twice`)
      this.inMemory.add(id)
      this.most = Math.max(this.most, this.inMemory.size)
      return new Pretended(id, this)
    }
    return new ModelShelf<Pretended>(
      ids.map(id => ({ id, contextLength: null, isPinned: pinned.includes(id), load: () => load(id) })),
      {
        mostLoaded: 2,
        keepMs: Number.POSITIVE_INFINITY,
        isShortage: error => (error as Error).message === 'no memory',
        onEvent: line => this.events.push(line),
        ...options,
      },
    )
  }
}

describe('a shelf of models', () => {
  test('answers everybody, with no more models in memory than there is room for, however they come', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b', 'c'])
    const random = seededRandom(7)
    let answered = 0
    const client = async () => {
      for (let i = 0; i < 60; i++) {
        const id = 'abc'[Math.floor(random() * 3)]
        const lease = await shelf.acquire(id)
        expect(lease.loaded.id).toBe(id)
        for (let pause = Math.floor(random() * 4); pause > 0; pause--) await world.pause()
        expect(world.inMemory.has(id)).toBe(true)
        lease.release()
        lease.release() // once is enough
        answered++
      }
    }
    await Promise.all(Array.from({ length: 16 }, client))
    expect(answered).toBe(16 * 60)
    expect(world.most).toBe(2)
    expect(shelf.counters.unloads).toBeGreaterThan(20)
    await shelf.close(new Error('closed'))
    expect(world.inMemory.size).toBe(0)
  })

  test('lets nobody overtake who waits for room', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b'], { mostLoaded: 1 })
    const first = await shelf.acquire('a')
    const order: string[] = []
    const wait = async (id: string, name: string) => {
      const lease = await shelf.acquire(id)
      order.push(name)
      lease.release()
    }
    const all = [wait('a', 'a1'), wait('b', 'b1'), wait('a', 'a2'), wait('a', 'a3')]
    await world.pause()
    expect(order).toEqual(['a1'])
    first.release()
    await Promise.all(all)
    expect(order).toEqual(['a1', 'b1', 'a2', 'a3'])
  })

  test('never unloads what is pinned, and unloads what was not used for a while', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b', 'c'], { keepMs: 15 }, ['a'])
    for (const id of ['a', 'b', 'c', 'b', 'c']) (await shelf.acquire(id)).release()
    expect(world.inMemory).toContain('a')
    await expect.poll(() => [...world.inMemory]).toEqual(['a'])
    expect(shelf.list.map(({ state }) => state)).toEqual(['loaded', 'unloaded', 'unloaded'])
  })

  test('keeps a model as long as its last user says, and longer than timers can tell', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b', 'pinned'], { keepMs: 2 ** 40 }, ['pinned'])
    const first = await shelf.acquire('a')
    first.release()
    await new Promise(resolve => setTimeout(resolve, 20)) // a timer of that length is over at once
    expect([shelf.isLoaded('a'), shelf.find('a')?.idleUntil]).toEqual([true, null])
    const [used, again] = [await shelf.acquire('a'), await shelf.acquire('a')]
    used.keepFor(5)
    used.release()
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(shelf.isLoaded('a')).toBe(true) // somebody uses it
    again.release()
    expect(Math.abs((shelf.find('a')?.idleUntil ?? 0) - Date.now())).toBeLessThan(1_000)
    await expect.poll(() => shelf.find('a')?.state).toBe('unloaded')
    expect(['b', 'pinned', 'nobody'].map(id => shelf.letGo(id))).toEqual([true, false, false])
    ;(await shelf.acquire('a')).release()
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(shelf.isLoaded('a')).toBe(true) // what was said before it went is forgotten
    const loading = shelf.acquire('b')
    shelf.letGo('b')
    shelf.letGo('a') // while another moves
    ;(await loading).release()
    await expect.poll(() => [...world.inMemory]).toEqual([])
  })

  test('makes room where a model does not fit beside the others, and says so where nothing helps', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b'], { mostLoaded: Number.POSITIVE_INFINITY })
    world.onLoad = id => {
      if (id === 'b' && world.inMemory.has('a')) throw new Error('no memory')
    }
    const held = await shelf.acquire('a')
    const waiting = shelf.acquire('b')
    await world.pause()
    held.release()
    const lease = await waiting
    expect([...world.inMemory]).toEqual(['b'])
    lease.release()
    world.onLoad = () => {
      throw new Error('no memory')
    }
    await shelf.close(new Error('closed'))
    const alone = world.shelf(['c'])
    await expect(alone.acquire('c')).rejects.toThrow('no memory')
    world.onLoad = () => {}
    ;(await alone.acquire('c')).release()
  })

  test('learns which models do not fit together, and forgets it after a while', async () => {
    const world = new World()
    let now = 0
    const shelf = world.shelf(['big', 'one', 'two'], { mostLoaded: Number.POSITIVE_INFINITY, now: () => now })
    const tried: string[] = []
    let isShort = true
    world.onLoad = id => {
      tried.push(id)
      if (isShort && world.inMemory.size > 0 && (id === 'big' || world.inMemory.has('big'))) {
        throw new Error('no memory')
      }
    }
    const use = async (id: string) => {
      tried.length = 0
      ;(await shelf.acquire(id)).release()
      return [...tried]
    }
    await use('one')
    expect(await use('big')).toEqual(['big', 'big']) // not beside the other, but in its place
    expect(await use('one')).toEqual(['one', 'one'])
    await use('two')
    expect([...world.inMemory]).toEqual(['one', 'two']) // room for two again, as they are small
    expect(await use('big')).toEqual(['big', 'big']) // beside neither of them: told once more, of the other
    expect(await use('one')).toEqual(['one']) // known by now
    expect(await use('big')).toEqual(['big'])
    isShort = false
    now = 600_001
    expect(await use('one')).toEqual(['one'])
    expect([...world.inMemory].sort()).toEqual(['big', 'one'])
  })

  test('loads again what has failed, refuses what fails at once, and forgets who left', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b'], { mostLoaded: 1 })
    const lease = await shelf.acquire('a')
    lease.loaded.hasFailed = true
    const next = shelf.acquire('a')
    lease.release()
    const again: Lease<Pretended> = await next
    expect(again.loaded).not.toBe(lease.loaded)
    const leaving = new AbortController()
    const left = shelf.acquire('b', leaving.signal)
    leaving.abort(new Error('gone'))
    await expect(left).rejects.toThrow('gone')
    // The one that was to make room for it does not have to any more.
    const quick = await shelf.acquire('a')
    quick.release()
    again.release()
    world.onLoad = () => {
      throw new Error('damaged')
    }
    await expect(shelf.acquire('b')).rejects.toThrow('damaged')
    await expect(shelf.acquire('nobody')).rejects.toThrow('nobody')
  })

  test('refuses who comes after it was closed, and gives up what is being loaded', async () => {
    const shelf = new ModelShelf<Pretended>(
      [
        {
          id: 'slow',
          contextLength: null,
          isPinned: false,
          // For ever, but for the signal.
          load: ({ signal }) =>
            new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true })),
        },
      ],
      { mostLoaded: 1, keepMs: 1_000, isShortage: () => false },
    )
    const stopping = new Error('stopping')
    const waiting = shelf.acquire('slow').catch(error => error)
    await shelf.close(stopping)
    expect(await waiting).toBe(stopping)
    await expect(shelf.acquire('slow')).rejects.toBe(stopping)
  })

  test('refuses who waits when it is closed', async () => {
    const world = new World()
    const shelf = world.shelf(['a', 'b'], { mostLoaded: 1 })
    const held = await shelf.acquire('a')
    const refused = expect(shelf.acquire('b')).rejects.toThrow('stopping')
    await shelf.close(new Error('stopping'))
    await refused
    held.release()
  })

  test('stops loading a model: who waits for it is told, and it can be had afterwards', async () => {
    const world = new World()
    const shelf = world.shelf(['a'])
    let stopped = 0
    shelf.add({
      id: 'slow',
      contextLength: null,
      isPinned: false,
      load: async ({ signal, onProgress }) => {
        onProgress({ phase: 'weights', loaded: 3, total: 4 })
        if (stopped === 0)
          await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('x'))))
        return new Pretended('slow', world)
      },
    })
    expect(shelf.stopLoading('slow', new Error('early'))).toBe(false)
    const waiting = [shelf.acquire('slow'), shelf.acquire('slow')].map(lease => lease.catch((error: Error) => error))
    expect(shelf.find('slow')).toMatchObject({ state: 'loading', progress: { loaded: 3, total: 4 } })
    stopped++
    expect(shelf.stopLoading('slow', new Error('enough'))).toBe(true)
    expect(await Promise.all(waiting)).toEqual([new Error('enough'), new Error('enough')])
    expect(shelf.find('slow')).toMatchObject({ state: 'unloaded', progress: null })
    const lease = await shelf.acquire('slow')
    lease.release()
    await shelf.close(new Error('end'))
  })
})
