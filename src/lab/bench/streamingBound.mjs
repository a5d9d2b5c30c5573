// How well the webgpu backend hides reading behind computing, seen from one command: decodes a synthetic model with a
// share of its experts in GPU memory and none in the machine's, past the page cache, and prints both sides of
//   time per token  <=  1.15 * max(bytes read per token / raw read bandwidth, time per token with all experts resident)
// The disk is measured between turns of a few tokens, at expert size; the resident time is that of the same tokens. `--help` lists the options.
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { uploadWay } from '../harness/uploadWay.mjs'

const { values: args } = parseArgs({
  options: {
    dist: { type: 'string', default: fileURLToPath(new URL('../../../dist', import.meta.url)) },
    synthetic: { type: 'string', default: 'a3b' },
    skew: { type: 'string', default: '1' },
    share: { type: 'string', default: '0.25' },
    tokens: { type: 'string', default: '96' },
    warmup: { type: 'string', default: '96' },
    precision: { type: 'string', default: 'fast' },
    'no-resident': { type: 'boolean', default: false },
    variants: { type: 'string', default: '[{}]' },
    help: { type: 'boolean', default: false },
  },
})
if (args.help) {
  console.log('streamingBound.mjs [--synthetic a3b[:LAYERS]] [--skew 1] [--share 0.25] [--tokens 96] [--warmup 96]')
  console.log('                   [--precision fast|exact] [--no-resident] [--dist DIR]')
  console.log('                   [--variants JSON]   a list of tunings, each measured; "prefetch": false is one too')
  process.exit()
}
const DEPTH = 8
const RAW_SECONDS = 0.2 // of reading alone
const TURN = 16 // tokens
const load = name => import(`${args.dist}/${name}`)
const { ensureSyntheticModel } = await load('lab/synthetic/syntheticModel.js')
const { parseSyntheticSpec } = await load('lab/synthetic/syntheticSpec.js')
const { TokenStream } = await load('lab/bench/tokenStream.js')
const { DiskMeter } = await load('experts/readers/nodeDiskSpeed.js')
const { storeRoot } = await load('files/models/modelStore.js')
const { openPacked } = await load('files/packed/openPacked.js')
const { openNodeFolder } = await load('files/nodeFolder.js')
const { openWebgpuBackend } = await load('backends/webgpu/open/openWebgpuBackend.js')
const { slotLayouts } = await load('gpu/memory/slotLayout.js')

let began = performance.now()
const spec = parseSyntheticSpec(args.synthetic, { skew: Number(args.skew) })
const folder = await ensureSyntheticModel(spec, storeRoot())
const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
const { numLayers, numExperts, expertsPerToken, vocabSize } = packed.config
const { expertSize } = packed.experts.layout
const [{ stride: slotBytes }] = slotLayouts(packed.experts.layouts)
console.log(`${spec.name}: ${numLayers} layers of ${numExperts} experts, ready after ${seconds(began)} s`)

const files = packed.experts.files.map(file => file.name)
const disk = new DiskMeter({ files, fileSize: numExperts * expertSize, readBytes: expertSize }, DEPTH)
const resident = args['no-resident'] ? null : await measure(1, {})
if (resident !== null) console.log(`all experts resident: ${resident.ms.toFixed(2)} ms per token`)
for (const variant of JSON.parse(args.variants)) {
  const run = await measure(Number(args.share), variant)
  const bound = Math.max(run.reading, resident?.ms ?? 0)
  console.log(`${JSON.stringify(variant)}: ${run.ms.toFixed(2)} ms per token`)
  console.log(
    `  ${(run.bytes / 1e6).toFixed(1)} MB read per token, alone ${run.reading.toFixed(2)} ms at the raw ` +
      `${(run.bytes / run.reading / 1e6).toFixed(2)} GB/s of depth 8, past the page cache`,
  )
  console.log(
    `  ${run.ms.toFixed(2)} ${run.ms <= 1.15 * bound ? '<=' : '>'} 1.15 * ${bound.toFixed(2)} = ` +
      `${(1.15 * bound).toFixed(2)} (ratio ${(run.ms / bound).toFixed(3)}; by turns ${run.ratios.join(', ')})`,
  )
  console.log(`  ${run.detail}`)
}
await disk.close()
await packed.close()

async function rawBandwidth() {
  return (await disk.measure(DEPTH, RAW_SECONDS)).bytesPerSecond
}

async function measure(share, { prefetch = true, ...tuning }) {
  const gpuMemory = Math.ceil(share * numLayers * numExperts) * slotBytes
  const options = { precision: args.precision, expertsPerToken, expertReads: 'direct', prefetch, gpuMemory }
  const backend = await openWebgpuBackend(packed, options, { tuning, way: uploadWay })
  try {
    const { gpuSlots } = backend.plan
    if (gpuSlots > (share + 0.01) * numLayers * numExperts) throw new Error(`the GPU holds ${gpuSlots} experts`)
    if (share === 1) await backend.loadAllExperts()
    const stream = new TokenStream(vocabSize, 1)
    const sequence = backend.createSequence()
    const decode = async count => {
      for (let i = 0; i < count; i++) {
        await backend.step([{ sequence, tokens: [stream.next()], phase: 'decode', output: 'argmax' }])
      }
    }
    await decode(Number(args.warmup))
    const tokens = Number(args.tokens)
    const before = backend.stats()
    // A disk of a virtual machine changes its mind from second to second, so the two take turns.
    let ms = 0
    let reading = 0 // ms
    const ratios = []
    let raw = share === 1 ? 1 : await rawBandwidth()
    for (let done = 0; done < tokens; done += TURN) {
      const count = Math.min(TURN, tokens - done)
      const { bytesRead } = backend.stats()
      began = performance.now()
      await decode(count)
      const took = performance.now() - began
      const bytes = backend.stats().bytesRead - bytesRead
      const next = share === 1 ? 1 : await rawBandwidth()
      const alone = (bytes * 2000) / (raw + next)
      ratios.push((took / alone).toFixed(2))
      ms += took / tokens
      reading += alone / tokens
      raw = next
    }
    const after = backend.stats()
    const delta = name => ((after[name] ?? 0) - (before[name] ?? 0)) / tokens
    const hits = delta('expertHits')
    const detail =
      `per token: ${hits.toFixed(1)} hits, ${delta('expertMisses').toFixed(1)} misses, ${delta('prefetchReads').toFixed(1)} read ` +
      `ahead, ${delta('prefetchHits').toFixed(1)} of use; waited ${(delta('stallSeconds') * 1000).toFixed(1)} ms, ` +
      `disk busy ${(delta('readBusySeconds') * 1000).toFixed(1)} ms, ${((delta('readSeconds') / (delta('expertMisses') + delta('prefetchReads'))) * 1000).toFixed(2)} ms per read`
    return { ms, bytes: delta('bytesRead'), reading, ratios, detail }
  } finally {
    await backend.close()
  }
}

function seconds(start) {
  return ((performance.now() - start) / 1000).toFixed(1)
}
