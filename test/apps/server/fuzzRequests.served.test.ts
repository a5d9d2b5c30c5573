// A few hundred broken requests for a server; `node src/lab/fuzz/fuzz.mjs requests --runs 10000` takes its time.
import { expect, test } from 'vitest'
import { problemLines, type ScriptProblem, scriptReport } from '../../support/scriptReport.js'

const RUNS = 300

interface RequestReport {
  readonly requests: {
    readonly runs: number
    readonly problems: readonly ScriptProblem[]
    readonly statuses: Readonly<Record<string, number>>
  }
}

test(`${RUNS} broken requests are refused or answered, and the server stays right`, async () => {
  const { requests } = await scriptReport<RequestReport>('fuzz/fuzz.mjs', ['requests', '--runs', String(RUNS)], 170_000)
  expect(problemLines(requests.problems)).toEqual([])
  expect(requests.runs).toBe(RUNS)
  expect(requests.statuses['fields: 200']).toBeGreaterThan(10)
  expect(requests.statuses['fields: 400']).toBeGreaterThan(50)
}, 180_000)
