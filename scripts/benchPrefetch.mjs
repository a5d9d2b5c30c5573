#!/usr/bin/env node
// Reading ahead against not reading ahead, interleaved: the same model is opened twice in one process and the two take
// turns of a few tokens of the same stream, so that both meet the same machine. Experts come past the page cache.
//
//   node scripts/benchPrefetch.mjs FOLDER [--expert-memory 600MB] [--tokens 256] [--turn 16] [--reads direct]
//
// FOLDER: a packed model; synthetic ones lie in the store after `moeflux bench --synthetic`.
import { parseArgs } from 'node:util'
import { openModel } from '../dist/index.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    'expert-memory': { type: 'string', default: '600MB' },
    tokens: { type: 'string', default: '256' },
    turn: { type: 'string', default: '16' },
    reads: { type: 'string', default: 'direct' },
  },
})
const [folder] = positionals
const tokens = Number(options.tokens)
const turn = Number(options.turn)

const sides = await Promise.all(
  [true, false].map(async prefetch => {
    const model = await openModel(folder, {
      backend: 'wasm',
      expertMemory: options['expert-memory'],
      expertReads: options.reads,
      prefetch,
    })
    const context = model.createContext({ maxCheckpoints: 0 })
    await context.evaluate([1, 2, 3, 4])
    return { prefetch, model, context, turns: [], before: model.stats() }
  }),
)
const { vocabSize } = sides[0].model
const stream = Array.from({ length: tokens }, (_, i) => (i * 7919 + (i >> 3) * 104729) % vocabSize)
for (let at = 0; at < tokens; at += turn) {
  const order = (at / turn) % 2 === 0 ? sides : [...sides].reverse()
  for (const { context, turns } of order) {
    const from = performance.now()
    for (const token of stream.slice(at, at + turn)) await context.evalTokenGreedy(token)
    turns.push((performance.now() - from) / turn)
  }
}
const median = values => [...values].sort((a, b) => a - b)[values.length >> 1]
for (const { prefetch, model, turns, before } of sides) {
  const after = model.stats()
  const per = field => (after[field] - before[field]) / tokens
  console.log(
    `prefetch ${prefetch ? 'on ' : 'off'}  ${median(turns).toFixed(2)} ms per token (median of ${turns.length} turns)` +
      `, ${(per('bytesRead') / 1e6).toFixed(2)} MB read per token` +
      `, ${(per('prefetchWastedBytes') / 1e6).toFixed(2)} MB of it in vain, stalled ${(per('stallSeconds') * 1000).toFixed(2)} ms`,
  )
}
const ratios = sides[0].turns.map((time, i) => time / sides[1].turns[i])
console.log(`on ÷ off, time per token, median of turns: ${median(ratios).toFixed(3)}`)
for (const { model } of sides) await model.close()
