// The streamer's decisions over a scripted disk: hits, misses, reads ahead, aborts, and slots that are never lost.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { PreviousExperts } from '#moeflux/backends/wasm/layers/earlyRouter.js'
import { ExpertReadError } from '#moeflux/base/errors.js'
import { ABORTED, ExpertStreamer, type ReadQueue } from '#moeflux/experts/expertStreamer.js'
import { PrefetchGovernor } from '#moeflux/experts/prefetchGovernor.js'
import { type ReadRequest, readState } from '#moeflux/experts/readers/readRing.js'

const layers = 4
const experts = 16
const expertSize = 64
const allExperts = Array.from({ length: experts }, (_, expert) => expert)

/** Answers reads without threads or files: when, in which order and how well is up to `random`. */
class FakeDisk implements ReadQueue {
  answers = 0
  lostReaders = 0
  failing = false
  afterAnswer: () => void = () => {}
  readonly memory: (string | null)[] // what each slot holds
  readonly reads: string[] = []
  private readonly states: number[]
  private readonly requests: (ReadRequest | null)[]
  private readonly demands: number[] = []
  private readonly ahead: number[] = []

  constructor(
    slots: number,
    private readonly random: () => number,
  ) {
    this.memory = new Array(slots).fill(null)
    this.states = new Array(slots).fill(readState.idle)
    this.requests = new Array(slots).fill(null)
  }

  submit(entry: number, request: ReadRequest, ahead: boolean): void {
    expect(this.states[entry]).toBe(readState.idle)
    this.states[entry] = readState.queued
    this.requests[entry] = request
    this.memory[entry] = null
    ;(ahead ? this.ahead : this.demands).push(entry)
  }

  promote(entry: number): void {
    if (this.states[entry] === readState.queued) this.demands.push(entry)
  }

  cancel(entry: number): boolean {
    if (this.states[entry] !== readState.queued) return false
    this.states[entry] = readState.idle
    return true
  }

  state(entry: number): number {
    return this.states[entry]
  }

  settle(entry: number): void {
    this.states[entry] = readState.idle
  }

  failure(): { code: string; got: number } {
    return { code: 'EIO', got: 0 }
  }

  waitForAnswer(): void {
    this.work()
    this.afterAnswer()
  }

  /** Begins some reads and ends one. */
  work(): void {
    while (this.random() < 0.6) this.begin()
    let reading = this.entriesIn(readState.reading)
    if (reading.length === 0) {
      this.begin()
      reading = this.entriesIn(readState.reading)
    }
    if (reading.length === 0) return
    const entry = reading[Math.floor(this.random() * reading.length)]
    const { file, offset } = this.requests[entry] as ReadRequest
    this.reads.push(`${file}:${offset / expertSize}`)
    this.states[entry] = this.failing ? readState.failed : readState.done
    if (!this.failing) this.memory[entry] = `${file}:${offset / expertSize}`
    this.answers++
  }

  get busy(): number {
    return this.entriesIn(readState.queued).length + this.entriesIn(readState.reading).length
  }

  get reading(): number {
    return this.entriesIn(readState.reading).length
  }

  begin(): void {
    for (const queue of [this.demands, this.ahead]) {
      for (let entry = queue.shift(); entry !== undefined; entry = queue.shift()) {
        if (this.states[entry] !== readState.queued) continue
        this.states[entry] = readState.reading
        return
      }
    }
  }

  private entriesIn(state: number): number[] {
    return this.states.flatMap((s, entry) => (s === state ? [entry] : []))
  }
}

function streamerOn(disk: FakeDisk, slots: number, prefetch = true) {
  const abort = new Int32Array(new SharedArrayBuffer(4))
  const plan = {
    layers,
    experts,
    expertsPerToken: 8,
    expertSize,
    slotBank: new Int32Array(slots),
    slotOffset: Float64Array.from({ length: slots }, (_, i) => i * expertSize),
    policy: 'lrfu' as const,
    prefetch,
    fileNames: Array.from({ length: layers }, (_, i) => `layer_0${i}.bin`),
    layerNumbers: Array.from({ length: layers }, (_, i) => i + 1), // as of a model whose first layer is dense
  }
  return { streamer: new ExpertStreamer(plan, disk, abort), abort }
}

/** All experts that a request hands out; each slot must hold what it says while it is handed out. */
function computeLayer(
  streamer: ExpertStreamer,
  disk: FakeDisk,
  layer: number,
  wanted: readonly number[],
  ofPrompt = false,
): number[] {
  const batch = new Int32Array(8)
  const got: number[] = []
  streamer.request(layer, wanted)
  if (ofPrompt) streamer.readNextLayer(layer + 1, wanted.length, () => [3, 1])
  for (;;) {
    const count = streamer.next(batch)
    if (count === ABORTED) break
    if (count === 0) {
      expect([...got].sort((a, b) => a - b)).toEqual([...wanted])
      break
    }
    for (const slot of batch.subarray(0, count)) {
      expect(disk.memory[slot]).toBe(`${layer}:${streamer.expertOf(slot)}`)
      got.push(streamer.expertOf(slot))
    }
  }
  streamer.release()
  return got
}

function randomOf(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    return (state >>> 0) / 2 ** 32
  }
}

const union = fc
  .uniqueArray(fc.nat(experts - 1), { minLength: 1, maxLength: experts })
  .map(set => set.sort((a, b) => a - b))

describe('expert streamer', () => {
  test('hands out every expert of every layer once, with any number of slots, reading each at most once', () => {
    fc.assert(
      fc.property(
        fc.nat(),
        fc.integer({ min: 1, max: layers * experts }),
        fc.array(fc.tuple(union, union), { minLength: 1, maxLength: 12 }),
        fc.boolean(),
        (seed, slots, steps, ofPrompt) => {
          const disk = new FakeDisk(slots, randomOf(seed))
          const { streamer } = streamerOn(disk, slots)
          steps.forEach(([wanted, guess], i) => {
            const layer = i % layers
            if (layer === 0) streamer.beginStep()
            const before = disk.reads.length
            if (!ofPrompt) streamer.guess((layer + 1) % layers, [guess])
            computeLayer(streamer, disk, layer, wanted, ofPrompt)
            if (ofPrompt) disk.work()
            const reads = disk.reads.slice(before).filter(name => name.startsWith(`${layer}:`))
            expect(new Set(reads).size).toBe(reads.length)
          })
          streamer.drain()
          expect(disk.busy).toBe(0)
          const { expertHits, expertMisses } = streamer.stats
          expect(expertHits + expertMisses).toBe(steps.reduce((sum, [wanted]) => sum + wanted.length, 0))
        },
      ),
      { numRuns: 300 },
    )
  })

  test('leaks no slot over 1,000 random aborts and failed reads', () => {
    const random = randomOf(7)
    const slots = 12
    const disk = new FakeDisk(slots, random)
    const { streamer, abort } = streamerOn(disk, slots)
    let failures = 0
    let aborts = 0
    for (let round = 0; round < 1000; round++) {
      const wanted = Array.from({ length: experts }, (_, e) => e).filter(() => random() < 0.4)
      streamer.beginStep()
      if (random() < 0.5) streamer.guess(Math.floor(random() * layers), [[1, 5, 9]])
      disk.failing = random() < 0.2
      const ofPrompt = random() < 0.3
      let answersLeft = Math.floor(random() * 8)
      disk.afterAnswer = () => {
        if (answersLeft-- === 0) Atomics.store(abort, 0, 1)
      }
      try {
        computeLayer(streamer, disk, round % layers, ofPrompt ? allExperts : wanted, ofPrompt)
        if (Atomics.load(abort, 0) !== 0) {
          aborts++
          streamer.giveUp()
        }
      } catch (error) {
        expect(error).toBeInstanceOf(ExpertReadError)
        expect(error).toMatchObject({
          code: 'EXPERT_READ',
          layer: (round % layers) + 1,
          file: `layer_0${round % layers}.bin`,
        })
        failures++
        streamer.release()
      }
      Atomics.store(abort, 0, 0)
    }
    expect(aborts).toBeGreaterThan(100)
    expect(failures).toBeGreaterThan(50)
    disk.failing = false
    disk.afterAnswer = () => {}
    streamer.drain()
    expect(disk.busy).toBe(0)
    // Every slot can still be had at once: nothing is pinned or in flight for ever.
    computeLayer(streamer, disk, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    expect(streamer.stats.expertSlotsUsed).toBe(slots)
    for (let expert = 0; expert < 12; expert++) expect(disk.memory).toContain(`0:${expert}`)
  })

  test('hands out hits before it waits for misses', () => {
    const disk = new FakeDisk(8, randomOf(1))
    const { streamer } = streamerOn(disk, 8)
    computeLayer(streamer, disk, 0, [2, 3])
    streamer.request(0, [1, 2, 3, 4])
    const batch = new Int32Array(8)
    expect(streamer.next(batch)).toBe(2)
    expect([streamer.expertOf(batch[0]), streamer.expertOf(batch[1])]).toEqual([2, 3])
    expect(disk.busy).toBe(2) // the misses were asked for before the hits were handed out
    streamer.release()
  })

  test('lets a demand overtake prefetches that wait', () => {
    const disk = new FakeDisk(64, randomOf(3))
    const { streamer } = streamerOn(disk, 64)
    streamer.guess(1, [[0, 1, 2, 3, 4, 5]])
    computeLayer(streamer, disk, 0, [9])
    expect(disk.reads[0]).toBe('0:9')
  })

  test('calls off guesses for a layer that turned out otherwise, and counts only what reached the disk', () => {
    const disk = new FakeDisk(64, randomOf(3))
    const { streamer } = streamerOn(disk, 64)
    streamer.guess(1, [[3, 0, 1, 2]])
    computeLayer(streamer, disk, 1, [3])
    streamer.drain()
    expect(disk.reads).toEqual(['1:3'])
    expect(streamer.stats).toMatchObject({ expertHits: 1, prefetchHits: 1, prefetchReads: 1, expertMisses: 0 })
  })

  test('stops reading guesses that do not come true, and reads them again when they do', () => {
    const disk = new FakeDisk(4, randomOf(3))
    const { streamer } = streamerOn(disk, 4)
    /** Reads ahead in the last steps of many. */
    const readsAhead = (wantedOf: (guess: number) => number) => {
      let before = 0
      for (let i = 0; i < 250; i++) {
        if (i === 200) before = streamer.stats.prefetchReads
        const guess = (i * 5) % experts // out of memory again when its turn comes
        streamer.beginStep()
        streamer.guess(1, [[guess]])
        computeLayer(streamer, disk, 0, [i % experts]) // time for the guess to be read
        computeLayer(streamer, disk, 1, [wantedOf(guess)])
      }
      return streamer.stats.prefetchReads - before
    }
    expect(readsAhead(guess => guess)).toBeGreaterThan(40)
    expect(readsAhead(guess => (guess + 1) % experts)).toBe(0)
    expect(readsAhead(guess => guess)).toBeGreaterThan(40)
  })

  describe('in a prompt that wants whole layers', () => {
    /** Chunks of a prompt through all layers, while the disk ends a few reads between layers. */
    const readsOfChunks = (slots: number, chunks: number, ofPrompt: boolean) => {
      const disk = new FakeDisk(slots, randomOf(9))
      const { streamer } = streamerOn(disk, slots)
      let before = 0 // reads of the first half, in which rates are still coming up
      for (let i = 0; i < chunks * layers; i++) {
        if (i === (chunks * layers) / 2) before = disk.reads.length
        if (i % layers === 0) streamer.beginStep()
        computeLayer(streamer, disk, i % layers, allExperts, ofPrompt)
        for (let n = 0; n < 6; n++) disk.work()
      }
      streamer.drain()
      return { reads: disk.reads.length - before, ...streamer.stats }
    }

    test.each([4, 16, 24, 40, 56, 64])('reads the next one before its turn, and none once more: %d slots', slots => {
      const plain = readsOfChunks(slots, 30, false)
      const ahead = readsOfChunks(slots, 30, true)
      expect(plain.prefetchReads).toBe(0)
      expect(ahead.prefetchReads).toBeGreaterThan(slots === 64 ? 3 : 30 * 3)
      expect(ahead.prefetchHits).toBe(ahead.prefetchReads)
      expect(ahead.reads).toBe(plain.reads)
    })

    test('takes nothing from the present layer: not before all of it has slots, and only slots of turns that are over', () => {
      const disk = new FakeDisk(20, randomOf(2))
      const { streamer } = streamerOn(disk, 20)
      computeLayer(streamer, disk, 3, [0, 1, 2, 3])
      streamer.request(0, allExperts)
      streamer.readNextLayer(1, experts, () => [])
      const isRead = (layer: number, expert: number) => disk.memory.includes(`${layer}:${expert}`)
      const batch = new Int32Array(4)
      for (let n = streamer.next(batch); n > 0; n = streamer.next(batch)) {
        expect([0, 1, 2, 3].filter(expert => !isRead(3, expert))).toEqual([])
      }
      streamer.release()
      while (disk.busy > 0) disk.work()
      expect(allExperts.filter(expert => isRead(1, expert)).length).toBeGreaterThanOrEqual(10)
      expect([0, 1, 2, 3].filter(expert => !isRead(3, expert))).toEqual([])
    })

    test('reads what is guessed where a chunk wants less', () => {
      const disk = new FakeDisk(32, randomOf(2))
      const { streamer } = streamerOn(disk, 32)
      streamer.request(0, [1, 2])
      streamer.readNextLayer(1, 2, () => [7, 5])
      while (disk.busy > 0) disk.work()
      expect(disk.reads.toSorted()).toEqual(['0:1', '0:2', '1:5', '1:7'])
      streamer.release()
      computeLayer(streamer, disk, 1, [5, 6])
      expect(streamer.stats).toMatchObject({ prefetchReads: 2, prefetchHits: 1, expertMisses: 3 })
    })

    test('asks for nothing more when the prompt is given up', () => {
      const disk = new FakeDisk(32, randomOf(2))
      const { streamer } = streamerOn(disk, 32)
      streamer.request(0, [1])
      streamer.readNextLayer(1, experts, () => [])
      expect(disk.busy).toBe(17)
      streamer.giveUp()
      streamer.release()
      expect(disk.busy).toBe(0)
      expect(streamer.stats.prefetchReads).toBe(0)
    })
  })

  test('says which expert of which file cannot be read, and reads it when the disk is well again', () => {
    const disk = new FakeDisk(4, randomOf(3))
    const { streamer } = streamerOn(disk, 4)
    disk.failing = true
    streamer.request(2, [5])
    expect(() => streamer.next(new Int32Array(4))).toThrow(
      'expert 5 of layer 3: reading failed with EIO (layer_02.bin at 320)',
    )
    streamer.release()
    disk.failing = false
    expect(computeLayer(streamer, disk, 2, [5])).toEqual([5])
  })

  test('does not fail a request by a read that began before it: that one is read again', () => {
    for (const asks of [false, true]) {
      const disk = new FakeDisk(4, randomOf(3))
      const { streamer } = streamerOn(disk, 4)
      disk.failing = true
      streamer.request(2, [5, 6])
      while (disk.reading < 2) disk.begin()
      let failed = -1
      try {
        streamer.next(new Int32Array(4))
      } catch (error) {
        failed = (error as ExpertReadError).expert
      }
      streamer.release() // the other read goes on
      const other = 5 + 6 - failed
      streamer.request(2, [other])
      disk.work()
      disk.failing = false
      // Whoever may not block asks first whether it would.
      while (asks && !streamer.poll()) disk.work()
      const batch = new Int32Array(4)
      const got: number[] = []
      for (let n = streamer.next(batch); n > 0; n = streamer.next(batch)) {
        for (let i = 0; i < n; i++) got.push(streamer.expertOf(batch[i]))
      }
      expect(got).toEqual([other])
      streamer.release()
    }
  })

  test('does not hang when a reader thread has died', () => {
    const disk = new FakeDisk(4, randomOf(3))
    const { streamer } = streamerOn(disk, 4)
    streamer.request(0, [1])
    disk.waitForAnswer = () => {
      disk.lostReaders = 1
    }
    expect(() => streamer.next(new Int32Array(4))).toThrow('a reader thread has died')
    streamer.drain()
  })
})

describe('prefetch governor', () => {
  const drive = (governor: PrefetchGovernor, onSeconds: number, offSeconds: number, steps: number) => {
    let on = 0
    for (let i = 0; i < steps; i++) {
      if (governor.on) on++
      governor.stepDone(governor.on ? onSeconds : offSeconds, 10)
    }
    return on / steps
  }

  test('turns itself off where it does not pay, costs little to find out, and tries again later', () => {
    const governor = new PrefetchGovernor(true)
    expect(drive(governor, 1.1, 1, 2000)).toBeLessThan(0.15)
    expect(drive(governor, 0.5, 1, 2000)).toBeGreaterThan(0.7)
  })

  test('is not misled by a cache that fills up while it tries, nor for long by noise', () => {
    const governor = new PrefetchGovernor(true)
    const random = randomOf(5)
    let on = 0
    for (let i = 0; i < 2000; i++) {
      const filling = 1 + 2 * Math.exp(-i / 20)
      const noise = 1 + 0.3 * random()
      if (governor.on) on++
      governor.stepDone((governor.on ? 0.93 : 1) * filling * noise, 10)
    }
    expect(on / 2000).toBeGreaterThan(0.8)
  })

  test('costs few steps where it clearly pays, from the first ones on', () => {
    for (const gain of [0.6, 0.7, 0.8]) {
      const governor = new PrefetchGovernor(true)
      const without = (steps: number) => Math.round((1 - drive(governor, gain, 1, steps)) * steps)
      expect(without(192)).toBeLessThanOrEqual(12)
      expect(without(800)).toBeLessThanOrEqual(16)
      expect(without(4000)).toBeLessThanOrEqual(40)
    }
  })

  test('where it clearly does not, too, and a look at the other way finds out when that has changed', () => {
    const governor = new PrefetchGovernor(true)
    expect(drive(governor, 1.4, 1, 200)).toBeLessThan(0.25)
    expect(drive(governor, 1.4, 1, 4000)).toBeLessThan(0.02)
    expect(drive(governor, 0.8, 1, 1000), 'one hold later').toBeGreaterThan(0.4)
    expect(drive(governor, 0.8, 1, 1000)).toBeGreaterThan(0.97)
  })

  test('noise costs less than the steps of whole trials did', () => {
    const random = randomOf(9)
    for (const gain of [0.7, 0.85, 1.2]) {
      let took = 0
      let best = 0
      for (let run = 0; run < 40; run++) {
        const governor = new PrefetchGovernor(true)
        for (let i = 0; i < 1000; i++) {
          const noise = 1 + 0.4 * random()
          const seconds = (governor.on ? gain : 1) * noise
          took += seconds
          best += Math.min(gain, 1) * noise
          governor.stepDone(seconds, 10)
        }
      }
      expect(took / best).toBeLessThan(1.025)
    }
  })

  test('learns on after steps that a coarse clock says took no time', () => {
    const governor = new PrefetchGovernor(true)
    for (let i = 0; i < 64; i++) governor.stepDone(0, 10)
    expect(drive(governor, 0.5, 1, 2000)).toBeGreaterThan(0.7)
  })

  test('stays off when it is not allowed, and learns nothing from steps without reads', () => {
    expect(new PrefetchGovernor(false).on).toBe(false)
    const governor = new PrefetchGovernor(true)
    for (let i = 0; i < 1000; i++) governor.stepDone(1, 0)
    expect(governor.on).toBe(true)
  })
})

describe('previous experts', () => {
  test('keeps the last set of each sequence and layer apart, and forgets a sequence', () => {
    const previous = new PreviousExperts()
    previous.observe(1, 0, [3, 4])
    previous.observe(2, 0, [5])
    previous.observe(1, 1, [6])
    expect(previous.of(1, 0)).toEqual([3, 4])
    previous.forget(1)
    expect([previous.of(1, 0), previous.of(1, 1), previous.of(2, 0)]).toEqual([[], [], [5]])
  })
})
