// The life of slots and staging buffers: what can happen does, and what cannot is refused whatever came before.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SlotLife, slotState, stagingState } from '#moeflux/experts/slotLife.js'

type SlotName = keyof typeof slotState
type SlotStep = 'claim' | 'callOff' | 'arrive' | 'fail' | 'evict' | 'pin' | 'unpin' | 'begin'

/** The rules once more, as a table: from, whether pinned and whether a buffer is filled for it, to. */
function next(step: SlotStep, from: SlotName, pins: number, fills: boolean): SlotName | null {
  switch (step) {
    case 'claim':
      return from === 'empty' ? 'asked' : null
    case 'callOff':
      return from === 'asked' && pins === 0 && !fills ? 'empty' : null
    case 'arrive':
      return from === 'asked' && fills ? 'ready' : null
    case 'fail':
      return from !== 'asked' ? null : pins > 0 ? 'failed' : 'empty'
    case 'evict':
      return from === 'ready' && pins === 0 ? 'empty' : null
    case 'pin':
      return from === 'asked' || from === 'ready' ? from : null
    case 'unpin':
      return pins === 0 ? null : from === 'failed' && pins === 1 ? 'empty' : from
    case 'begin':
      return from === 'asked' && !fills ? from : null
  }
}

const steps: readonly SlotStep[] = ['claim', 'callOff', 'arrive', 'fail', 'evict', 'pin', 'unpin', 'begin']

describe('a slot', () => {
  test('goes from state to state as the table says, and no other way', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.constantFrom(...steps), fc.nat(2)), { maxLength: 60 }), script => {
        const life = new SlotLife(3, 100)
        const model = Array.from({ length: 3 }, () => ({ state: 'empty' as SlotName, pins: 0, fills: false }))
        for (const [step, slot] of script) {
          const own = model[slot]
          const to = next(step, own.state, own.pins, own.fills)
          if (to === null) {
            expect(() => life[step](slot), `${step} while ${own.state}`).toThrow(`slot ${slot}`)
            continue
          }
          life[step](slot)
          own.state = to
          if (step === 'pin') own.pins++
          if (step === 'unpin') own.pins--
          if (step === 'begin') own.fills = true
          if (step === 'arrive' || step === 'fail') own.fills = false
          expect(life.stateOf(slot)).toBe(slotState[to])
          expect(life.pinsOf(slot)).toBe(own.pins)
          expect(life.mayEvict(slot)).toBe(own.state === 'ready' && own.pins === 0)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('in memory that readers write directly needs no staging buffer', () => {
    const life = new SlotLife(1)
    life.claim(0)
    life.arrive(0)
    expect(life.stateOf(0)).toBe(slotState.ready)
  })
})

describe('a staging buffer', () => {
  test('is free again when its copy is done and it is mapped, or when its read has failed', () => {
    const life = new SlotLife(2, 1)
    life.claim(0)
    life.claim(1)
    const buffer = life.begin(0)
    expect(life.begin(1)).toBe(-1)
    life.fail(0)
    expect(life.stagingStateOf(buffer)).toBe(stagingState.free)
    expect(life.begin(1)).toBe(buffer)
    expect(() => life.submit(buffer)).toThrow('cannot submit staging buffer 0: it is filling')
    life.arrive(1)
    expect(() => life.mapped(buffer)).toThrow('cannot map staging buffer 0: it is filled')
    expect(life.freeStaging).toBe(0)
    life.submit(buffer)
    expect(() => life.submit(buffer)).toThrow('it is copying')
    expect(life.freeStaging).toBe(0)
    life.mapped(buffer)
    expect(life.freeStaging).toBe(1)
  })

  test('is gone with the device, whatever ends later', () => {
    const life = new SlotLife(3, 3)
    for (const slot of [0, 1, 2]) life.claim(slot)
    const [filled, copying] = [life.begin(0), life.begin(1)]
    life.arrive(0)
    life.arrive(1)
    life.submit(copying)
    life.begin(2)
    life.lose()
    life.submit(filled)
    life.mapped(copying)
    life.fail(2)
    life.claim(2)
    expect(life.begin(2)).toBe(-1)
    expect(life.isLost).toBe(true)
  })
})
