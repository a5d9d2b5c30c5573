#!/usr/bin/env node
// Guessing ahead against doing without, interleaved: the same model is opened once for each number of guesses, and these take turns
// of the same number of tokens of greedy text, so that all meet the same machine.
//
//   node scripts/benchDrafts.mjs FOLDER [--drafts 0,1,2,3,auto] [--turns 12] [--turn 48] [--threads 2] [--expert-memory 600MB]
//                                [--reads direct] [--accept 0.85] [--warm 1024] [--one] [--prompt TEXT] [--precision exact]
//
// `--accept`: guesses are right with this likelihood, by dice, and every turn has another prompt: for random weights. `--warm`: tokens of a
// prompt that brings experts into memory first. `--one`: all take turns on one model that was opened with its head, where several would not
// fit; then the head's keys and values are computed where there are no guesses, too. FOLDER: a packed model; the built-in one is dist/demo-model.
import { parseArgs } from 'node:util'
import { DraftGovernor } from '../dist/engine/draftGovernor.js'
import { openModel } from '../dist/index.js'

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
    prompt: { type: 'string', default: 'Once upon a time there was a little' },
  },
})
const [folder] = positionals
const turn = Number(options.turn)
const accept = options.accept === undefined ? null : Number(options.accept)

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
  const governor = shared === null ? model.drafts : new DraftGovernor(drafts, 3, 0.15)
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

async function takeTurn(side, number) {
  const context = side.model.createContext({ maxCheckpoints: 0 })
  let { argmax: token } = await context.evaluate(prompt ?? stream(number, 16))
  side.governor?.answerBegins()
  const used = process.cpuUsage()
  const from = performance.now()
  for (let left = turn; left > 0; ) {
    const { next, tokens } = await round(context, side.governor, token, left)
    token = next
    left -= tokens
  }
  const milliseconds = (performance.now() - from) / turn
  const { user, system } = process.cpuUsage(used)
  await context.close()
  return { milliseconds, processor: (user + system) / 1000 / turn }
}

for (const side of sides) {
  const context = side.model.createContext({ maxCheckpoints: 0 })
  if (Number(options.warm) > 0) await context.evaluate(stream(99, Number(options.warm)), { logits: 'none' })
  await context.close()
  for (let i = 0; i < 3; i++) await takeTurn(side, i) // compilers
}
for (let i = 0; i < Number(options.turns); i++) {
  for (const side of i % 2 === 0 ? sides : [...sides].reverse()) {
    const { milliseconds, processor } = await takeTurn(side, i)
    side.milliseconds.push(milliseconds)
    side.processor.push(processor)
  }
}
const part = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)]
const middle = values => part(values, 0.5)
const fast = values => part(values, 0.2) // on a machine that others use, too
const [off] = sides
for (const { drafts, governor, milliseconds, processor } of sides) {
  const ratio = middle(milliseconds.map((time, i) => off.milliseconds[i] / time))
  const stats = governor?.stats
  const told = stats ? `; ${stats.accepted} of ${stats.guesses} right, ${stats.now} now: ${stats.reason}` : ''
  console.log(
    `drafts ${String(drafts).padEnd(4)} ${(1000 / middle(milliseconds)).toFixed(1)} tok/s, ${ratio.toFixed(3)} times drafts ${off.drafts} ` +
      `(medians of turns); of the fastest fifth ${(1000 / fast(milliseconds)).toFixed(1)} tok/s, ` +
      `${(fast(off.milliseconds) / fast(milliseconds)).toFixed(3)} times; ${middle(processor).toFixed(2)} ms of processor per token${told}`,
  )
}
for (const model of new Set(sides.map(side => side.model))) await model.close()
