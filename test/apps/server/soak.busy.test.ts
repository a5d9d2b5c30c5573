// The soak of src/lab/soak/soak.mjs, until it has seen enough: clients that hang up, bombs, long prompts, cut files and a dying store at
// once, and every answer that is known compared. Another test file computes on the same processors meanwhile, so that
// of /health's 250 ms and 1 s (--shared) the time does not count in which its thread stood in line for one.
import { expect, test } from 'vitest'
import { problemLines, type ScriptProblem, scriptReport } from '../../support/scriptReport.js'

// Before and after them the right answers are asked for. A machine that makes fewer requests has more time for them.
const ENOUGH = ['--requests', '400', '--minutes', '2']

interface SoakReport {
  readonly requests: number
  readonly compared: number
  readonly problems: readonly ScriptProblem[]
  readonly outcomes: Readonly<Record<string, Readonly<Record<string, number>>>>
  readonly faults: Readonly<Record<string, number>>
  readonly stop: { readonly code: number | null }
}

test('a server stays right, alive and small while everything goes wrong', async () => {
  const args = [...ENOUGH, '--answer-limit', '100', '--shared']
  const report = await scriptReport<SoakReport>('soak/soak.mjs', args, 290_000)
  expect(problemLines(report.problems)).toEqual([])
  expect(report.stop.code).toBe(0)
  expect(report.requests).toBeGreaterThan(500)
  expect(report.compared).toBeGreaterThan(50)
  expect(report.outcomes.bomb?.left).toBeGreaterThan(0)
  expect(report.faults['cut files']).toBeGreaterThan(0)
}, 300_000)
