// Which records of a file are fetched together: neighbours, and those with a small gap between them, whose bytes cost less
// than another request. Pure.

/** Of a gap: what a connection of 10 MB/s brings in the time of a round trip of 13 ms. */
const MAX_GAP_BYTES = 128 * 1024

/** Of all gaps of a run, as a share of what is wanted. */
const MAX_WASTE = 0.25

/** A break in the middle costs no more than the record that it fell into; this bounds what waits for one connection. */
export const MAX_RUN_BYTES = 8 * 2 ** 20

export interface RecordRun<T> {
  readonly first: number // record
  readonly records: readonly (readonly T[])[] // who wants each; nobody wants those of gaps
  readonly signal: AbortSignal | undefined
}

interface Wanted {
  readonly record: number
  readonly signal: AbortSignal | undefined
}

/** Whoever stops with another signal gets a request of his own. */
export function recordRuns<T extends Wanted>(wanted: readonly T[], recordBytes: number): RecordRun<T>[] {
  const runs: { first: number; records: T[][]; signal: AbortSignal | undefined; count: number }[] = []
  for (const each of wanted.toSorted((a, b) => a.record - b.record)) {
    const run = runs.findLast(({ signal }) => signal === each.signal)
    const last = run === undefined ? 0 : run.first + run.records.length - 1
    const gap = each.record - last - 1
    if (run === undefined || (gap >= 0 && !mayJoin(run, gap, recordBytes))) {
      runs.push({ first: each.record, records: [[each]], signal: each.signal, count: 1 })
      continue
    }
    if (gap < 0) {
      run.records[run.records.length - 1].push(each) // the same record once more
      continue
    }
    for (let i = 0; i < gap; i++) run.records.push([])
    run.records.push([each])
    run.count++
  }
  return runs
}

function mayJoin(run: { records: readonly unknown[]; count: number }, gap: number, recordBytes: number): boolean {
  const records = run.records.length + gap + 1
  const wanted = run.count + 1
  return (
    records * recordBytes <= MAX_RUN_BYTES &&
    gap * recordBytes <= MAX_GAP_BYTES &&
    records - wanted <= wanted * MAX_WASTE
  )
}
