// Broken files for the readers, broken requests for the server: made from valid ones, by a seed, so that each can be made
// again. Ends with exit code 1 and a line for each that was taken wrongly. See hardening.md.
//
//   node src/lab/fuzz/fuzz.mjs [readers|requests] [--runs 10000] [--seed 1] [--only safetensors,config] [--json]
//   node src/lab/fuzz/fuzz.mjs readers --seed 1 --only config --case 17     runs that one case and shows it
import { parseArgs } from 'node:util'
import { quantity } from '../harness/quantity.mjs'
import { fuzzReaders, READERS } from './fuzzReaders.mjs'
import { fuzzRequests, KINDS } from './fuzzRequests.mjs'

const FUZZERS = {
  readers: { run: fuzzReaders, names: READERS },
  requests: { run: fuzzRequests, names: KINDS },
}
const { values, positionals } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string' },
    case: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})
const chosen = positionals.length > 0 ? positionals : Object.keys(FUZZERS)
const reports = {}
for (const name of chosen) {
  const fuzzer = FUZZERS[name]
  if (fuzzer === undefined) refuse(`no fuzzer '${name}'; there are: ${Object.keys(FUZZERS).join(', ')}`)
  const only = values.only?.split(',') ?? fuzzer.names
  const unknown = only.find(each => !fuzzer.names.includes(each))
  if (unknown !== undefined) refuse(`--only: no '${unknown}'; there are: ${fuzzer.names.join(', ')}`)
  if (values.case !== undefined && chosen.length !== 1) refuse('--case: say of which fuzzer')
  if (values.case !== undefined && name === 'readers' && only.length !== 1) refuse('--case: say with --only of what')
  const single = values.case === undefined ? undefined : Number(values.case)
  const started = performance.now()
  const report = await fuzzer.run({
    seed: values.seed,
    runs: quantity(values, 'runs'),
    only,
    single,
    say: console.error,
  })
  reports[name] = { ...report, seconds: Math.round((performance.now() - started) / 1000) }
  if (!values.json) print(name, reports[name])
}
if (values.json) console.log(JSON.stringify(reports))
process.exitCode = Object.values(reports).every(report => report.problems.length === 0) ? 0 : 1

function print(name, { runs, seconds, seed, problems, readers = {}, ...rest }) {
  console.log(`${name}: ${runs} inputs with seed ${seed} in ${seconds} s, ${problems.length} problems`)
  for (const [target, row] of Object.entries(readers)) {
    const { opened, refused, slowestMs, results } = row
    console.log(
      `  ${target}: ${opened} opened, ${refused} refused, slowest ${slowestMs} ms (${JSON.stringify(results)})`,
    )
  }
  if (Object.keys(rest).length > 0) console.log(`  ${JSON.stringify(rest)}`)
  for (const { target, problem, again } of problems.slice(0, 100))
    console.log(`WRONG ${target}: ${problem}\n  ${again}`)
}

function refuse(message) {
  console.error(message)
  process.exit(2)
}
