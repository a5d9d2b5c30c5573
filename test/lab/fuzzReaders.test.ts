// A few hundred broken files for the readers; `node src/lab/fuzz/fuzz.mjs readers --runs 10000` takes its time.
import { expect, test } from 'vitest'
import { problemLines, type ScriptProblem, scriptReport } from '../support/scriptReport.js'

const RUNS = 300

interface ReaderReport {
  readonly readers: {
    readonly runs: number
    readonly problems: readonly ScriptProblem[]
    readonly readers: Readonly<Record<string, { readonly refused: number }>>
  }
}

test(`${RUNS} broken files open or are refused by name`, async () => {
  const { readers } = await scriptReport<ReaderReport>('fuzz/fuzz.mjs', ['readers', '--runs', String(RUNS)], 110_000)
  expect(problemLines(readers.problems)).toEqual([])
  expect(readers.runs).toBeGreaterThan(RUNS * 0.9)
  // Of each kind of file some are broken indeed, except for journals, which are never worth an error.
  const untouched = Object.entries(readers.readers).filter(([name, { refused }]) => name !== 'journal' && refused === 0)
  expect(untouched).toEqual([])
}, 120_000)
