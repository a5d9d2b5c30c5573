// Thousands of broken files for the readers, in another process that is watched: a case that takes too long is killed with
// it and counts as wrong, and the rest goes on in a new one.
import { fork } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const PROCESS = fileURLToPath(new URL('readerProcess.mjs', import.meta.url))
const LIMIT_MS = 2000
/** On a machine that others use too, what has not had half of its time to compute gets more, up to this. */
const PATIENCE = 10
const TICKS_PER_SECOND = 100
const PROGRESS_EVERY = 1000

export const READERS = [
  ...[
    'safetensors',
    'gguf',
    'index',
    'config',
    'packed',
    'conversion',
    'journal',
    'tokenizer',
    'template',
    'generation config',
  ],
  ...['trace', 'snapshot', 'envelope', 'transcript', 'conversations'],
]
/** Cheap ones are run more often: a conversion takes a hundred times as long as a header. */
const SHARE = { conversion: 0.3, journal: 0.1, packed: 0.7, template: 0.5 }

/** `only`: names of readers; `single`: the number of the one case to run. */
export async function fuzzReaders({ seed, runs, only, single, say }) {
  const report = { seed, runs: 0, readers: {}, problems: [] }
  let left = single === undefined ? planCases(runs, only) : only.map(name => [name, single])
  while (left.length > 0) {
    left = left.slice(await runProcess(seed, left, report, say, single !== undefined))
  }
  return report
}

function planCases(runs, only) {
  const total = only.reduce((sum, name) => sum + (SHARE[name] ?? 1), 0)
  return only.flatMap(name => {
    const count = Math.max(1, Math.round((runs * (SHARE[name] ?? 1)) / total))
    return Array.from({ length: count }, (_, index) => [name, index])
  })
}

/** Runs cases until all are done or one takes the process with it; returns how many need not be run again. */
function runProcess(seed, cases, report, say, isShown) {
  const child = fork(PROCESS, [], { execArgv: ['--max-old-space-size=1024'] })
  child.send({ seed, cases })
  let finished = 0
  let current = null // [target, index]
  let watchdog = null
  const problem = (target, index, what, input) => {
    const again = `node src/lab/fuzz/fuzz.mjs readers --seed ${seed} --only '${target}' --case ${index}`
    report.problems.push({ target, case: index, problem: what, again, input })
  }
  return new Promise(resolve => {
    child.on('message', message => {
      if (message.begin) {
        current = message.begin
        watchdog = watch(child, message.limitMs ?? LIMIT_MS)
      } else if (message.stray) problem(...(current ?? ['none', 0]), `an error that nobody waits for: ${message.stray}`)
      else if (message.end) {
        clearInterval(watchdog)
        finished++
        report.runs++
        const [target, index] = message.end
        tally(report, target, message)
        if (message.problem !== null) problem(target, index, message.problem, message.input)
        if (report.runs % PROGRESS_EVERY === 0) say(`${report.runs} files, ${report.problems.length} problems`)
        if (isShown)
          say(`${target} ${index}: ${message.result} ${message.message ?? message.problem ?? ''}\n${message.input}`)
        current = null
      }
    })
    child.on('close', (code, signal) => {
      clearInterval(watchdog)
      if (finished === cases.length) return resolve(finished)
      if (current === null) throw new Error(`the process of the readers ended with ${code ?? signal} before it began`)
      problem(...current, signal === 'SIGKILL' ? 'no end in time' : `the process ended with ${code ?? signal}`)
      report.runs++
      resolve(finished + 1)
    })
  })
}

function watch(child, limitMs) {
  const started = performance.now()
  const before = cpuMs(child.pid)
  return setInterval(() => {
    const waited = performance.now() - started
    const used = cpuMs(child.pid) - before
    if (waited > limitMs * PATIENCE || (waited > limitMs && used > limitMs / 2)) child.kill('SIGKILL')
  }, 100)
}

function cpuMs(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
    return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS_PER_SECOND
  } catch {
    return Number.POSITIVE_INFINITY // not Linux, or gone: the clock alone counts
  }
}

function tally(report, target, { result, milliseconds }) {
  const row = (report.readers[target] ??= { runs: 0, opened: 0, refused: 0, slowestMs: 0, results: {} })
  row.runs++
  row[result === 'opened' ? 'opened' : 'refused']++
  row.results[result] = (row.results[result] ?? 0) + 1
  row.slowestMs = Math.max(row.slowestMs, Math.round(milliseconds))
}
