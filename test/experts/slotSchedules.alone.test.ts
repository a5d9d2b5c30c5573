// Every order in which demands, reads ahead, reads that end well or badly, aborts, submissions, the GPU, the loss of the
// device and the end can meet, over the real bookkeeping of slots and staging buffers: no expert is computed that is not
// there, no buffer is used by two, nothing stays pinned, nobody waits for ever. And old mistakes, put back, are found.
import { describe, expect, test } from 'vitest'
import { SlotLife } from '#moeflux/experts/slotLife.js'
import { SlotWorld, type WorldShape } from '../support/faults/slotWorld.js'

interface Outcome {
  readonly worlds: number
  readonly problem: string | null
}

/** Tries all schedules, depth first. A world cannot be copied: where schedules part, one goes on and others begin anew. */
async function explore(shape: WorldShape, change?: (world: SlotWorld) => void): Promise<Outcome> {
  const seen = new Set<string>()
  const open: string[][] = [[]]
  for (let schedule = open.pop(); schedule !== undefined; schedule = open.pop()) {
    const world = await SlotWorld.create(shape, change)
    try {
      for (const event of schedule) world.happen(event)
      for (let key = world.key(); !seen.has(key); key = world.key()) {
        seen.add(key)
        const [first, ...others] = world.events()
        if (first === undefined) break
        for (const event of others) open.push([...schedule, event])
        schedule = [...schedule, first]
        world.happen(first)
      }
    } catch (error) {
      return { worlds: seen.size, problem: `${(error as Error).message} (${schedule.join(' · ')})` }
    }
  }
  return { worlds: seen.size, problem: null }
}

const decode: WorldShape = { slots: 2, stagingBuffers: 1, most: { hold: 2, ahead: 1, fail: 1, abort: 1 } }
// With a decode after it there are 100,000 worlds; they take half a minute, for those who have it.
const after = process.env.MOEFLUX_ALL_SCHEDULES ? 1 : 0
const prompt: WorldShape = { slots: 2, stagingBuffers: 2, most: { waves: 1, hold: after, ahead: 1, fail: 1 } }

describe('every schedule', () => {
  test.each([
    ['decodes that miss, with a fault and an abort', decode],
    ['a prompt in waves, with a fault', prompt],
    ['an abort in a prompt', { slots: 2, stagingBuffers: 2, most: { waves: 2, abort: 1 } }],
    ['experts that are all read again', { slots: 2, stagingBuffers: 1, most: { hold: 2, forget: 1 } }],
    ['faults one after the other', { slots: 3, stagingBuffers: 1, most: { hold: 2, fail: 3 } }],
    ['a device that is lost', { slots: 2, stagingBuffers: 2, most: { waves: 1, fail: 1, lose: 1 } }],
    ['an end', { slots: 2, stagingBuffers: 1, most: { hold: 1, ahead: 1, fail: 1, close: 1 } }],
  ] satisfies [string, WorldShape][])('%s', async (_, shape) => {
    const { worlds, problem } = await explore(shape)
    expect(problem).toBeNull()
    expect(worlds).toBeGreaterThan(200)
  })
})

/** What is private to the bookkeeping, for those who break it. */
interface Insides {
  waiting: Set<number>
  ahead: Set<number>
  broken: number[]
  slotStates: Uint8Array
  fills: Int32Array
  stagingStates: Uint8Array
  free: number[]
}
const insidesOf = (object: object) => object as unknown as Insides

const mistakes: [what: string, shape: WorldShape, change: (world: SlotWorld) => void, problem: RegExp][] = [
  [
    'whoever waits skips the slot of a failed read',
    decode,
    ({ core, cache }) => {
      const { ended } = core
      core.ended = (slot, fault) => {
        if (fault === null) return ended.call(core, slot, fault)
        const { waiting, ahead, broken } = insidesOf(core)
        if (waiting.delete(slot)) broken.push(slot)
        ahead.delete(slot)
        return cache.failed(slot)
      }
    },
    /is computed and in no slot/,
  ],
  [
    'a staging buffer is free while its copy is not submitted',
    decode,
    ({ cache: { life } }) => {
      life.arrive = slot => {
        const buffer = insidesOf(life).fills[slot]
        SlotLife.prototype.arrive.call(life, slot)
        insidesOf(life).stagingStates[buffer] = 0
        insidesOf(life).free.push(buffer)
      }
      life.submit = () => {}
      life.mapped = () => {}
    },
    /is free while|is not mapped/,
  ],
  [
    'a staging buffer is free while the GPU copies from it',
    decode,
    ({ cache: { life } }) => {
      life.submit = buffer => {
        SlotLife.prototype.submit.call(life, buffer)
        SlotLife.prototype.mapped.call(life, buffer)
      }
      life.mapped = () => {}
    },
    /is free while|is not mapped/,
  ],
  [
    'the range of a staging buffer is asked for again after a failed read',
    decode,
    world => {
      world.uploads.view = buffer => new Uint8Array(world.staging[buffer].getMappedRange())
    },
    /is asked for twice/,
  ],
  [
    'an expert is still found in a slot that was given away',
    decode,
    world => {
      world.uploads.hide = () => {}
    },
    /the table shows|should hold|which holds/,
  ],
  [
    'a slot is given away while it is read',
    decode,
    ({ reads, cache: { life } }) => {
      const { callOff } = reads
      reads.callOff = slot => callOff.call(reads, slot) || true
      life.callOff = slot => {
        insidesOf(life).slotStates[slot] = 0
        insidesOf(life).fills[slot] = -1
      }
    },
    /cannot|waits for ever/,
  ],
  [
    'the pin on the slot of a failed read is forgotten',
    decode,
    ({ core }) => {
      const { release } = core
      core.release = () => {
        insidesOf(core).broken.length = 0
        release.call(core)
      }
    },
    /stays pinned/,
  ],
  [
    'other reads begin before what has come is on its way into its slot',
    { slots: 1, stagingBuffers: 2, most: { waves: 1, ahead: 1 } },
    ({ actions, core }) => {
      const later: (() => void)[] = []
      const { send } = actions
      actions.send = (...given) => later.push(() => send(...given))
      const { goOn } = core
      core.goOn = () => {
        goOn.call(core)
        for (const work of later.splice(0)) work()
      }
    },
    /which it does not hold|cannot|which holds/,
  ],
]

describe('a mistake is found', () => {
  test.each(mistakes)('%s', async (_, shape, change, problem) => {
    expect((await explore(shape, change)).problem).toMatch(problem)
  })
})
