// Many clients against `moeflux serve` for a long time, on a copy of the built-in model, with everything that goes wrong in
// real life at once: half of them hang up, some send bombs, files are cut and restored, the snapshot store dies. Ends by
// itself, with a report and exit code 0 where nothing was wrong. See hardening.md.
//
//   node src/lab/soak/soak.mjs [--minutes 20] [--clients 64] [--threads 2] [--seed 1] [--json] [--without bomb,"cut files"]
//   node src/lab/soak/soak.mjs --minutes 2 --requests 600    ends earlier, after so many, once all has gone wrong that can
//   node src/lab/soak/soak.mjs --seed 1 --request 17.203     sends that one request alone and shows what comes back
import { rm } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { quantity } from '../harness/quantity.mjs'
import { FAULT_NAMES } from './faults.mjs'
import { replay } from './replay.mjs'
import { printReport } from './report.mjs'
import { runSoak } from './run.mjs'
import { KIND_NAMES } from './traffic.mjs'
import { prepareWorld } from './world.mjs'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '20' },
    requests: { type: 'string', default: 'Infinity' }, // that are enough
    clients: { type: 'string', default: '64' },
    threads: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
    context: { type: 'string', default: '2048' },
    'answer-limit': { type: 'string', default: '120' }, // seconds that any request may take: dozens wait before it
    shared: { type: 'boolean', default: false }, // the machine: /health is judged without the wait for a processor
    without: { type: 'string', default: '' },
    request: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
})
const without = values.without.split(',').filter(name => name !== '')
const unknown = without.filter(name => ![...KIND_NAMES, ...FAULT_NAMES].includes(name))
if (unknown.length > 0) {
  console.error(`--without: no '${unknown[0]}'; there are: ${[...KIND_NAMES, ...FAULT_NAMES].join(', ')}`)
  process.exit(2)
}
const options = {
  minutes: quantity(values, 'minutes'),
  enoughRequests: quantity(values, 'requests'),
  clients: quantity(values, 'clients'),
  threads: quantity(values, 'threads'),
  contextLength: quantity(values, 'context'),
  answerMs: quantity(values, 'answer-limit') * 1000,
  isMachineShared: values.shared,
  seed: values.seed,
  without,
}
const say = line => console.error(line)

const world = await prepareWorld(options, say)
if (values.request !== undefined) {
  await replay(world, options, values.request)
  await rm(world.folder, { recursive: true, force: true })
} else {
  const report = await runSoak(world, options, say)
  if (values.json) console.log(JSON.stringify(report))
  else printReport(report)
  // What was wrong is kept there, with the server's log.
  if (report.problems.length === 0) await rm(world.folder, { recursive: true, force: true })
  process.exitCode = report.problems.length === 0 ? 0 : 1
}
