#!/usr/bin/env node
// An option on against off, interleaved: the same model is opened twice in one process and the two take turns of a few
// tokens of the same stream, so that both meet the same machine. Experts come past the page cache.
//
//   node src/lab/bench/benchOnOff.mjs [FOLDER] [--option prefetch|checksums] [--expert-memory 600MB] [--tokens 256] [--turn 16]
//                               [--prompt] [--reads direct] [--threads N]
//
// `--prompt`: the tokens of a turn are a prompt of its own, else they are decoded one by one.
// FOLDER: a packed model, by default the built-in one; synthetic ones are in the store after `moeflux bench --synthetic`.
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'
import { demoModelPath, openModel } from '../../../dist/index.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    option: { type: 'string', default: 'prefetch' },
    threads: { type: 'string' },
    'expert-memory': { type: 'string', default: '600MB' },
    tokens: { type: 'string', default: '256' },
    turn: { type: 'string', default: '16' },
    prompt: { type: 'boolean', default: false },
    reads: { type: 'string', default: 'direct' },
  },
})
const [folder = demoModelPath()] = positionals
const tokens = Number(options.tokens)
const turn = Number(options.turn)

const sides = await Promise.all(
  [true, false].map(async on => {
    const model = await openModel(folder, {
      backend: 'wasm',
      expertMemory: options['expert-memory'],
      expertReads: options.reads,
      threads: options.threads && Number(options.threads),
      [options.option]: on,
    })
    const context = model.createContext({ maxCheckpoints: 0 })
    await context.evaluate([1, 2, 3, 4])
    return { on, model, context, turns: [], processor: [], before: model.stats() }
  }),
)
const { vocabSize } = sides[0].model
const stream = Array.from({ length: tokens }, (_, i) => (i * 7919 + (i >> 3) * 104729) % vocabSize)
for (let at = 0; at < tokens; at += turn) {
  const order = (at / turn) % 2 === 0 ? sides : [...sides].reverse()
  for (const { model, context, turns, processor } of order) {
    const fresh = options.prompt ? model.createContext({ maxCheckpoints: 0 }) : null
    const from = performance.now()
    const used = process.cpuUsage()
    if (fresh !== null) await fresh.evaluate(stream.slice(at, at + turn))
    else for (const token of stream.slice(at, at + turn)) await context.evalTokenGreedy(token)
    turns.push((performance.now() - from) / turn)
    const { user, system } = process.cpuUsage(used)
    processor.push((user + system) / 1000 / turn)
    await fresh?.close()
  }
}
for (const { on, model, turns, processor, before } of sides) {
  const after = model.stats()
  const per = field => (after[field] - before[field]) / tokens
  console.log(
    `${options.option} ${on ? 'on ' : 'off'}  ${upperMedian(turns).toFixed(2)} ms per token (median of ${turns.length} turns)` +
      `, ${upperMedian(processor).toFixed(2)} ms of processor time` +
      `, ${(per('bytesRead') / 1e6).toFixed(2)} MB read per token` +
      `, ${(per('prefetchWastedBytes') / 1e6).toFixed(2)} MB of it in vain, ${per('prefetchReads').toFixed(2)} reads ahead` +
      `, ${per('prefetchHits').toFixed(2)} of use, stalled ${(per('stallSeconds') * 1000).toFixed(2)} ms`,
  )
}
for (const [what, of] of [
  ['time per token', 'turns'],
  ['processor time', 'processor'],
]) {
  const ratios = sides[0][of].map((time, i) => time / sides[1][of][i])
  console.log(`on ÷ off, ${what}, median of turns: ${upperMedian(ratios).toFixed(3)}`)
}
for (const { model } of sides) await model.close()
