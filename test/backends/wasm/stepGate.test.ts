// The gate that tests stop workers with: a worker that comes while the gate is being set is seen, or is counted later.
import { afterEach, expect, test, vi } from 'vitest'
import { JobBoard } from '#moeflux/backends/wasm/workers/jobBoard.js'
import { gatedParts, StepGate } from '#moeflux/backends/wasm/workers/stepGate.js'

const shape = { threads: 1, chunkTokens: 1, layers: 1, fullLayers: 0, moeLayers: 1, experts: 1, headRows: 1 }
afterEach(() => void vi.restoreAllMocks())

function openGate() {
  const gate = new StepGate()
  const buffer = new SharedArrayBuffer(new JobBoard(shape).size)
  const { team } = gatedParts(gate.buffer, 0, shape, buffer)
  /** Whether the worker failed at the gate. */
  const pass = () => {
    try {
      team.start(1)
      return false
    } catch {
      return true
    }
  }
  return { gate, pass }
}

/** The worker comes right after the n-th write of arming the gate; how many writes there were. */
function armWithVisit(n: number): { writes: number; failures: number; isReached: boolean } {
  const { gate, pass } = openGate()
  const store = Atomics.store
  let writes = 0
  let failures = 0
  vi.spyOn(Atomics, 'store').mockImplementation(((...write: Parameters<typeof store>) => {
    const written = store(...write)
    if (++writes === n && pass()) failures++
    return written
  }) as typeof store)
  gate.arm(0, 1, 'throw')
  vi.restoreAllMocks()
  for (let more = 0; more < 3; more++) if (pass()) failures++
  return { writes, failures, isReached: gate.isReached }
}

test('a worker that comes between any two writes fails once, and is seen', () => {
  const { writes } = armWithVisit(0)
  expect(writes).toBeGreaterThan(4)
  for (let n = 0; n <= writes; n++) {
    expect(armWithVisit(n), `after write ${n}`).toMatchObject({ failures: 1, isReached: true })
  }
})
