#!/usr/bin/env node
// Guessing ahead against doing without, interleaved: the same model is opened once for each number of guesses, and these take turns
// of the same number of tokens of greedy text, so that all meet the same machine.
//
//   node src/lab/bench/benchDrafts.mjs FOLDER [--drafts 0,1,2,3,auto] [--turns 12] [--turn 48] [--threads 2] [--expert-memory 600MB]
//                                [--reads direct] [--accept 0.85] [--warm 1024] [--one] [--prompt TEXT] [--precision exact]
//                                [--fresh 10] [--slice 25]
//
// `--accept`: guesses are right with this likelihood, by dice, and every turn has another prompt: for random weights. `--warm`: tokens of a
// prompt that brings experts into memory first. `--one`: all take turns on one model that was opened with its head, where several would not
// fit; then the head's keys and values are computed where there are no guesses, too. `--fresh`: so many processes one after the
// other, whose turns are the first that they compute. `--slice`: all sides decode their turns side by side, so many tokens each at a time, so that
// they meet the same moments. FOLDER: a packed model; the built-in one is dist/demo-model.
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'
import { DraftGovernor } from '../../../dist/engine/draftGovernor.js'
import { openModel } from '../../../dist/index.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    drafts: { type: 'string', default: '0,1,2,3,auto' },
    turns: { type: 'string', default: '12' },
    turn: { type: 'string', default: '48' },
    threads: { type: 'string' },
    'expert-memory': { type: 'string' },
    reads: { type: 'string' },
    accept: { type: 'string' },
    warm: { type: 'string', default: '0' },
    one: { type: 'boolean', default: false },
    precision: { type: 'string' },
    fresh: { type: 'string' },
    slice: { type: 'string' },
    child: { type: 'boolean', default: false }, // a process of --fresh: prints what its turns took
    prompt: { type: 'string', default: 'Once upon a time there was a little' },
  },
})
const [folder] = positionals
const turn = Number(options.turn)
const slice = Number(options.slice ?? turn)
const accept = options.accept === undefined ? null : Number(options.accept)
const part = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)]
const fast = values => part(values, 0.2) // on a machine that others use, too

if (options.fresh !== undefined && !options.child) {
  benchFresh(Number(options.fresh))
  process.exit()
}

/** Speed beside the first side's, of the first turn and of all of them. */
function benchFresh(processes) {
  const runs = Array.from({ length: processes }, (_, i) => {
    const order = options.drafts.split(',')
    if (i % 2 === 1) order.reverse() // who is opened first has an advantage
    const args = [fileURLToPath(import.meta.url), ...process.argv.slice(2), '--drafts', order.join(','), '--child']
    const run = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }))
    return i % 2 === 1 ? run.reverse() : run
  })
  const sum = values => values.reduce((a, b) => a + b, 0)
  for (const [side, { drafts }] of runs[0].entries()) {
    const told = [1, Number(options.turns)].map(turns => {
      const took = (run, side) => sum(run[side].milliseconds.slice(0, turns)) / turns
      const ratios = runs.map(run => took(run, 0) / took(run, side))
      const all = sum(runs.map(run => took(run, 0))) / sum(runs.map(run => took(run, side)))
      const rate = 1000 / upperMedian(runs.map(run => took(run, side)))
      const range = `${upperMedian(ratios).toFixed(3)} by the median of ${processes}, ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`
      return `${turns * turn} tokens ${rate.toFixed(1)} tok/s, ${all.toFixed(3)} times drafts ${runs[0][0].drafts} (${range})`
    })
    console.log(`drafts ${String(drafts).padEnd(4)} ${told.join('; ')}`)
    for (const run of runs) if (drafts === 'auto') console.log(`  ${statsLine(run[side].stats)}`)
  }
}

function statsLine({ accepted, guesses, now, reason }) {
  return `${accepted} of ${guesses} right, ${now} now: ${reason}`
}

const open = drafts =>
  openModel(folder, {
    backend: 'wasm',
    drafts,
    threads: options.threads && Number(options.threads),
    expertMemory: options['expert-memory'],
    expertReads: options.reads,
    precision: options.precision,
  })
const shared = options.one ? await open(3) : null
const sides = []
for (const word of options.drafts.split(',')) {
  const drafts = word === 'auto' ? word : Number(word)
  const model = shared ?? (await open(drafts))
  const governor = shared === null ? model.drafts : new DraftGovernor(drafts, 3, { isCompiled: true })
  sides.push({ drafts, model, governor, milliseconds: [], processor: [] })
}
const { vocabSize } = sides[0].model
const stream = (from, count) => Array.from({ length: count }, (_, i) => ((from * 1000 + i) * 7919 + 104729) % vocabSize)
const prompt = accept === null ? sides[0].model.tokenizer.encode(options.prompt) : null

/** As `bench` does it. */
async function round(context, governor, token, left) {
  const started = performance.now()
  const count = governor?.next(Math.min(3, left - 1)) ?? 0
  const seconds = () => (performance.now() - started) / 1000
  if (count === 0) {
    const next = await context.evalTokenGreedy(token)
    governor?.roundDone({ guesses: 0, right: 0, seconds: seconds() })
    return { next, tokens: 1 }
  }
  const guesses = await context.draft(token, count)
  let next = -1
  const keep = ({ argmax }) => {
    let right = 0
    const isRight = () => (accept === null ? guesses[right] === argmax[right] : Math.random() < accept)
    while (right < guesses.length && isRight()) right++
    next = argmax[right]
    return right + 1
  }
  const tokens = await context.evalGuesses([token, ...guesses], { output: 'argmax', keep })
  governor.roundDone({ guesses: guesses.length, right: tokens - 1, seconds: seconds() })
  return { next, tokens }
}

async function beginTurn(side, number) {
  const context = side.model.createContext({ maxCheckpoints: 0 })
  const { argmax } = await context.evaluate(prompt ?? stream(number, 16))
  side.governor?.answerBegins()
  return { side, context, token: argmax, left: turn, milliseconds: 0, processor: 0 }
}

async function decodeSome(begun, most) {
  const used = process.cpuUsage()
  const from = performance.now()
  for (const end = begun.left - most; begun.left > Math.max(0, end); ) {
    const { next, tokens } = await round(begun.context, begun.side.governor, begun.token, begun.left)
    begun.token = next
    begun.left -= tokens
  }
  begun.milliseconds += (performance.now() - from) / turn
  const { user, system } = process.cpuUsage(used)
  begun.processor += (user + system) / 1000 / turn
}

/** A turn of each of these. */
async function takeTurns(sides, number, isCounted) {
  const begun = []
  for (const side of sides) begun.push(await beginTurn(side, number))
  while (begun.some(({ left }) => left > 0)) for (const each of begun) await decodeSome(each, slice)
  for (const { side, context, milliseconds, processor } of begun) {
    await context.close()
    if (!isCounted) continue
    side.milliseconds.push(milliseconds)
    side.processor.push(processor)
  }
}

for (const side of options.child ? [] : sides) {
  const context = side.model.createContext({ maxCheckpoints: 0 })
  if (Number(options.warm) > 0) await context.evaluate(stream(99, Number(options.warm)), { logits: 'none' })
  await context.close()
  for (let i = 0; i < 3; i++) await takeTurns([side], i, false) // compilers
}
for (let i = 0; i < Number(options.turns); i++) await takeTurns(i % 2 === 0 ? sides : [...sides].reverse(), i, true)
const [off] = sides
if (options.child) {
  const told = sides.map(({ drafts, milliseconds, governor }) => ({ drafts, milliseconds, stats: governor?.stats }))
  console.log(JSON.stringify(told))
}
for (const { drafts, governor, milliseconds, processor } of options.child ? [] : sides) {
  const ratio = upperMedian(milliseconds.map((time, i) => off.milliseconds[i] / time))
  const stats = governor?.stats
  const told = stats ? `; ${statsLine(stats)}` : ''
  console.log(
    `drafts ${String(drafts).padEnd(4)} ${(1000 / upperMedian(milliseconds)).toFixed(1)} tok/s, ${ratio.toFixed(3)} times drafts ${off.drafts} ` +
      `(medians of turns); of the fastest fifth ${(1000 / fast(milliseconds)).toFixed(1)} tok/s, ` +
      `${(fast(off.milliseconds) / fast(milliseconds)).toFixed(3)} times; ${upperMedian(processor).toFixed(2)} ms of processor per token${told}`,
  )
}
for (const model of new Set(sides.map(side => side.model))) await model.close()
