// Room for request bodies: who waits for whom, and that nothing is lost.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Admission } from '#moeflux/apps/server/admission.js'
import { BodyRoom } from '#moeflux/apps/server/bodyBudget.js'

const MiB = 2 ** 20
const always = new AbortController().signal
const turn = () => new Promise(resolve => setImmediate(resolve))
/** Bodies of at most 32 MiB: 64 MiB for large ones, 64 MiB for those of at most 4. */
const makeRoom = (waitMs = 60_000) => new BodyRoom({ maxBytes: 32 * MiB, waitMs })

/** Whether room was given, and what gives it back. */
function ask(room: BodyRoom, bytes: number, signal = always) {
  const asked = { isIn: false, error: null as unknown, leave: () => {} }
  room.enter(bytes, signal).then(
    leave => Object.assign(asked, { isIn: true, leave }),
    error => Object.assign(asked, { error }),
  )
  return asked
}

describe('room for bodies', () => {
  test('is given in order, and large bodies keep no others waiting', async () => {
    const room = makeRoom()
    const large = [30, 30, 30, 5].map(size => ask(room, size * MiB))
    const others = [4, 4, 0.01].map(size => ask(room, size * MiB))
    await turn()
    expect(large.map(body => body.isIn)).toEqual([true, true, false, false])
    expect(others.map(body => body.isIn)).toEqual([true, true, true])
    large[1].leave()
    large[1].leave()
    await turn()
    expect(large.map(body => body.isIn)).toEqual([true, true, true, false])
    for (const body of large.slice(0, 3)) body.leave()
    await turn()
    expect(large[3].isIn).toBe(true)
    for (const body of [...large, ...others]) body.leave()
    expect(room.bytes).toBe(0)
  })

  test('is not waited for for ever, and one that leaves makes way', async () => {
    const room = makeRoom(20)
    const leave = new AbortController()
    const bodies = [
      ask(room, 32 * MiB),
      ask(room, 30 * MiB),
      ask(room, 32 * MiB, leave.signal),
      ask(room, 2 * MiB + 4 * MiB),
    ]
    leave.abort(new Error('left'))
    await turn()
    expect(bodies[2].error).toEqual(new Error('left'))
    await expect.poll(() => bodies[3].error).toMatchObject({ status: 503, details: { retryAfterSeconds: 5 } })
    expect(ask(room, 1000).error).toBeNull()
    for (const body of bodies) body.leave()
    expect(room.bytes).toBe(0)
  })

  test('never holds more than there is, and all who ask get in', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.integer({ min: 1, max: 32 }), fc.boolean())), async sizes => {
        const room = makeRoom()
        const bodies = sizes.map(([size, isWanted]) => {
          const leave = new AbortController()
          const body = ask(room, size * MiB, leave.signal)
          if (!isWanted) leave.abort(new Error('left'))
          return body
        })
        for (let i = 0; i <= 2 * sizes.length; i++) {
          await turn()
          expect(room.bytes).toBeLessThanOrEqual(128 * MiB)
          for (const body of bodies) if (body.isIn) body.leave()
        }
        expect(bodies.every(body => body.isIn || body.error !== null)).toBe(true)
        expect(room.bytes).toBe(0)
      }),
      { numRuns: 50 },
    )
  })
})

describe('places', () => {
  test('are taken, changed and given back', () => {
    const admission = new Admission(2, 2)
    const first = admission.enter()
    const second = admission.enter()
    first.resize(3)
    expect(admission.active).toBe(4)
    expect(() => admission.enter()).toThrow(expect.objectContaining({ status: 429 }))
    expect(() => second.resize(2)).toThrow(expect.objectContaining({ status: 429 }))
    expect(admission.active).toBe(4)
    second.resize(0)
    second.resize(0)
    expect(() => first.resize(9)).not.toThrow() // nobody else is there
    expect(() => second.resize(1)).toThrow()
    first.resize(0)
    second.resize(1)
    expect(admission.active).toBe(1)
  })
})
