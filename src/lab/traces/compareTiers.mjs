#!/usr/bin/env node
// What moves between GPU and memory are worth, replayed from traces as if experts had the size of a real model's (1.77 MB): where
// decoded tokens find their experts, what moves, and the time per layer that measured speeds give, apart from the GPU's own work.
//
//   node src/lab/traces/recordTraces.mjs traces && node src/lab/traces/compareTiers.mjs traces/*.trace
import { readFileSync } from 'node:fs'
import { promptTimes, secondsPerToken } from '../../../dist/experts/tierSpeed.js'
import { optimalHits } from '../../../dist/lab/traces/optimalHits.js'
import { decodeTrace } from '../../../dist/lab/traces/routingTrace.js'
import { simulateTiers } from '../../../dist/lab/traces/simulateTiers.js'

const expertBytes = 1_769_472
const machine = { computeSeconds: 0, waitSeconds: 100e-6, cpuBytesPerSecond: 50e9, diskBytesPerSecond: 2.6e9 }
const fast = { ...machine, uploadBytesPerSecond: 15e9 }
const slow = { ...machine, uploadBytesPerSecond: 4e9 }
const sizes = [
  [0.2, 0.4],
  [0.4, 0.3],
  [0.4, 0.6],
]
const rules = [
  ['lru', 4, 0],
  ['lrfu', 4, 0],
  ['lrfu', 4, 2],
  ['lrfu', 4, 4],
  ['lrfu', 4, 8],
  ['lrfu', 4, 16],
  ['lrfu', 1, 4],
  ['lrfu', 16, 4],
  ['lrfu', 0, 4],
]

const recorded = process.argv.slice(2).map(file => ({ ...decodeTrace(readFileSync(file), file), expertBytes }))
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length
const percent = rate => `${(100 * rate).toFixed(1)}%`
for (const model of new Set(recorded.map(trace => trace.model))) {
  const traces = recorded.filter(trace => trace.model === model)
  for (const [gpu, memory] of sizes) {
    const slots = traces.map(({ layers, experts }) => ({
      gpuSlots: Math.round(gpu * layers * experts),
      memorySlots: Math.round(memory * layers * experts),
    }))
    console.log(`\n${model} (${traces.length}), ${100 * gpu}% on the GPU, ${100 * memory}% in memory\n`)
    console.log(
      '| policy, moves allowed, uses to pay | GPU | memory | disk | layers that miss | moves | read again | µs per layer, upload 15 GB/s | 4 GB/s |',
    )
    console.log('|---|---|---|---|---|---|---|---|---|')
    for (const [policy, moves, usesToPay] of rules) {
      const results = traces.map((trace, i) => {
        const rule = { bytesPerStep: moves * expertBytes, usesToPay, times: promptTimes(expertBytes, fast) }
        const { decode } = simulateTiers(trace, policy, slots[i], rule)
        const load = {
          layersMissed: decode.layersMissed / decode.steps,
          expertsMissed: (decode.memory + decode.disk) / decode.steps,
          expertsRead: decode.disk / decode.steps,
          expertsPromoted: decode.promotions / decode.steps,
        }
        const lookups = decode.gpu + decode.memory + decode.disk
        const micros = speeds => (1e6 * secondsPerToken(load, expertBytes, speeds)) / trace.layers
        return [
          decode.gpu / lookups,
          decode.memory / lookups,
          decode.disk / lookups,
          load.layersMissed / trace.layers,
          load.expertsPromoted,
          decode.refills / decode.steps,
          micros(fast),
          micros(slow),
        ]
      })
      const [onGpu, inMemory, onDisk, missed, moved, refilled, fastTime, slowTime] = results[0].map((_, i) =>
        mean(results.map(result => result[i])),
      )
      const cells = [onGpu, inMemory, onDisk, missed].map(percent)
      cells.push(moved.toFixed(2), refilled.toFixed(2), fastTime.toFixed(0), slowTime.toFixed(0))
      console.log(`| ${policy}, ${moves}, ${usesToPay} | ${cells.join(' | ')} |`)
    }
    const ceilings = traces.map((trace, i) => {
      const { gpuSlots, memorySlots } = slots[i]
      const onGpu = optimalHits(trace, { slots: gpuSlots, from: 'stepEnd', decodeOnly: true })
      const both = optimalHits(trace, { slots: gpuSlots + memorySlots, from: 'use', decodeOnly: true })
      return [onGpu.hits / onGpu.wanted, both.hits / both.wanted]
    })
    const [onGpu, both] = [0, 1].map(i => mean(ceilings.map(each => each[i])))
    console.log(`| optimum | ${percent(onGpu)} | ${percent(both - onGpu)} | ${percent(1 - both)} | | | | | |`)
  }
}
