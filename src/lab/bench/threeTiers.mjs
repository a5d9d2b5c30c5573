#!/usr/bin/env node
// Both sides, the GPU alone and the processors alone, under one limit on memory: each way in a process and a control group of its
// own, by turns. Prints a table for performance-log.md. Another program has to fill up the GPU, or --gpu-memory says how small it is.
//
//   node src/lab/bench/threeTiers.mjs [--synthetic a3b] [--limit 8GB] [--gpu-memory 5GB] [--rounds 2]
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { uploadWay } from '../harness/uploadWay.mjs'
import { parseBytes, runCapped, whyNot } from './capped.mjs'

const { values } = parseArgs({
  options: {
    synthetic: { type: 'string', default: 'a3b' },
    limit: { type: 'string', default: '8GB' },
    'gpu-memory': { type: 'string' },
    rounds: { type: 'string', default: '2' },
    prompt: { type: 'string', default: '128' },
    tokens: { type: 'string', default: '64' },
    way: { type: 'string' }, // of a child
  },
})
if (values.way === undefined) await compare()
else await runOne(values.way)

async function compare() {
  const reason = whyNot()
  if (reason !== null) {
    console.error(reason)
    process.exit(2)
  }
  console.log(
    `| way, memory limited to ${values.limit} | ended | peak | decode, tok/s | prompt, tok/s | found on GPU, in memory, on disk | |`,
  )
  console.log('| --- | --- | --- | --- | --- | --- | --- |')
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const way of ['both', 'gpu', 'cpu']) {
      const args = [fileURLToPath(import.meta.url), ...process.argv.slice(2), '--way', way]
      const result = await runCapped(parseBytes(values.limit), process.execPath, args)
      const end = result.killed ? 'killed' : (result.signal ?? `code ${result.code}`)
      const peak = result.peak === null ? '' : `${(result.peak / 1e9).toFixed(1)} GB`
      const line = result.stdout.split('\n').findLast(text => text.startsWith('{'))
      const told = line === undefined ? null : JSON.parse(line)
      const figures = told === null ? ` | | | ${result.stderr.trim().split('\n').at(-1)}` : figuresOf(told)
      console.log(`| ${way} | ${end} | ${peak} | ${figures} |`)
    }
  }
}

function figuresOf({ decode, prefill, found, notices }) {
  const rates = list => list.map(rate => rate.toFixed(1)).join(', ')
  return `${rates(decode)} | ${rates(prefill)} | ${found} | ${notices.join('; ')}`
}

async function runOne(way) {
  const load = name => import(new URL(`../../../dist/${name}`, import.meta.url))
  const { ensureSyntheticModel } = await load('lab/synthetic/syntheticModel.js')
  const { parseSyntheticSpec } = await load('lab/synthetic/syntheticSpec.js')
  const { tokenSourceFor } = await load('lab/bench/tokenSource.js')
  const { runBench } = await load('lab/bench/runBench.js')
  const { storeRoot } = await load('files/models/modelStore.js')
  const { openNodeFolder } = await load('files/nodeFolder.js')
  const { openPacked } = await load('files/packed/openPacked.js')
  const { EngineModel } = await load('engine/model.js')
  const { openWebgpuBackend } = await load('backends/webgpu/open/openWebgpuBackend.js')
  const { openWasmBackend } = await load('backends/wasm/wasmBackend.js')
  const { parseByteSize } = await load('base/quantities.js')
  const spec = parseSyntheticSpec(values.synthetic, { bits: 4, seed: 1 })
  const packed = await openPacked(
    await openNodeFolder(await ensureSyntheticModel(spec, storeRoot(), {}), { links: 'any' }),
  )
  const notices = []
  const { expertsPerToken, maxPositionEmbeddings: contextLength } = packed.config
  const tokens = Number(values.prompt) + Number(values.tokens)
  const options = {
    precision: 'fast',
    expertsPerToken,
    planned: { tokens, sequences: 1, isContext: false },
    gpuMemory: values['gpu-memory'] === undefined ? undefined : parseByteSize(values['gpu-memory'], 'gpu-memory'),
    onNotice: line => notices.push(line),
  }
  const backend =
    way === 'cpu'
      ? await openWasmBackend(packed, { ...options, gpuMemory: undefined })
      : await openWebgpuBackend(packed, options, way === 'gpu' ? { way: uploadWay } : {})
  const model = new EngineModel({ packed, backend, contextLength, expertsPerToken })
  const source = await tokenSourceFor(model, { greedy: false, seed: 1 })
  const bench = { promptTokens: Number(values.prompt), decodeTokens: Number(values.tokens), repeat: 3, warmup: true }
  const { decodeRuns, prefillRuns, tiers, decode } = await runBench(model, source, bench)
  const percent = part => `${((100 * part) / (tiers.gpu.hits + tiers.memory.hits + tiers.disk.hits)).toFixed(1)}%`
  const found =
    tiers === null
      ? `in memory ${(100 * decode.hitRate).toFixed(1)}%`
      : `${percent(tiers.gpu.hits)}, ${percent(tiers.memory.hits)}, ${percent(tiers.disk.hits)}`
  console.log(JSON.stringify({ decode: decodeRuns, prefill: prefillRuns, found, notices }))
  await model.close()
}
