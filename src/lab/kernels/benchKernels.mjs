// Times the WASM kernels alone: `node src/lab/kernels/benchKernels.mjs [filter] [--threads 2] [--simd baseline]`. Needs a build.
// Weights rotate through a pool larger than the caches, so that products run from memory as in a real token. Figures are
// summed over threads that run the same work side by side.
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { PAGE_TOKENS } from '../../../dist/backends/kvPages.js'
import {
  activationBytes,
  blockActivationBytes,
  hasRelaxedSimd,
  instantiateKernels,
} from '../../../dist/backends/wasm/kernels.js'
import { loadKernels } from '../../../dist/backends/wasm/nodePlatform.js'
import { BLOCK_FORMATS, blockShift, blockSizes, hasLaneSums, isNibbles } from '../../../dist/model/blockFormats.js'

const MB = 1 << 20
const POOL = 320 * MB // weights
const WORK = 64 * MB // everything else

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: 'string', default: '1' },
    simd: { type: 'string' },
    seconds: { type: 'string', default: '0.3' },
  },
})

/**
 * Each case: what one call does, in what unit, the calls themselves (a function of the call's number), and what comes before the
 * first. They share memory: what another has left there, read as floats, may be subnormal, which some processors are slow with.
 */
function cases({ kernels, reader, fill, noise }, pool, work) {
  const out = []
  const scratch = work + 60 * MB
  const add = (name, unit, perCall, call, setUp = () => noise(work, 32 * MB)) =>
    out.push({ name, unit, perCall, call, setUp })

  add('read memory', 'GB/s', 16 * MB, i => reader(pool + (i % 20) * 16 * MB, 16 * MB))
  const matrix = (label, precision, bits, group, rows, cols, tokens) => {
    const weightBytes = (rows * cols * bits) / 8
    const scaleBytes = (rows * cols * 2) / group
    const size = weightBytes + 2 * scaleBytes
    const count = Math.max(1, Math.floor(POOL / size))
    const record = activationBytes(cols, bits, group, precision)
    const x = work
    const act = work + tokens * cols * 4
    const y = act + tokens * record
    const setUp = () => {
      noise(x, 4 * tokens * cols)
      const prepare = kernels[precision === 'fast' ? 'prepareFast' : 'prepareExact']
      prepare(act, record, x, cols * 4, cols, bits, group, 0, tokens)
    }
    const multiply = kernels[precision === 'fast' ? 'matmulFast' : 'matmulExact']
    // Calls for slices of rows, so that each is short.
    const slice = Math.min(rows, Math.max(32, Math.round(4e6 / (cols * tokens))))
    const slices = Math.floor(rows / slice)
    const name = `${label} ${precision} ${bits}-bit/${group} ${rows}x${cols} T=${tokens}`
    const perCall = tokens === 1 ? (size * slice) / rows : slice * cols * tokens
    add(
      name,
      tokens === 1 ? 'GB/s' : 'GMAC/s',
      perCall,
      i => {
        const w = pool + (Math.floor(i / slices) % count) * size
        const s = w + weightBytes
        const begin = (i % slices) * slice
        multiply(
          ...[
            y,
            rows * 4,
            0,
            w,
            s,
            s + scaleBytes,
            0,
            bits,
            group,
            cols,
            begin,
            begin + slice,
            act,
            record,
            0,
            tokens,
            scratch,
          ],
        )
      },
      setUp,
    )
  }
  const blocks = (name, precision, tokens, rows = 8192, cols = 2048) => {
    const format = BLOCK_FORMATS.get(name)
    const span = format.scale === 'product' ? 256 : 0
    const sizes = blockSizes(rows, cols, format, span)
    const size = sizes.weight + sizes.scales
    const count = Math.max(1, Math.floor(POOL / size))
    const isExact = precision === 'exact'
    const record = isExact ? activationBytes(cols, 4, 32, 'exact') : blockActivationBytes(cols, format.group)
    const act = work + tokens * cols * 4
    const y = act + tokens * record
    const { bits, group, kernel } = format
    // Random exponents would be subnormal numbers, which are slow: these are 2^-8.
    const powers = work + 56 * MB
    const ofRecords = [act, record, work, cols * 4, cols, bits, group]
    const setUp = () => {
      fill(powers, sizes.scales, 120)
      noise(work, 4 * tokens * cols)
      if (isExact) kernels.prepareExact(...ofRecords, 0, tokens)
      else kernels.prepareBlocks(...ofRecords, blockShift(format), hasLaneSums(format), 0, tokens)
    }
    const slice = Math.min(rows, Math.max(32, Math.round(4e6 / (cols * tokens))))
    const slices = Math.floor(rows / slice)
    const perCall = tokens === 1 ? (size * slice) / rows : slice * cols * tokens
    add(
      `qkv ${precision} ${name} ${rows}x${cols} T=${tokens}`,
      tokens === 1 ? 'GB/s' : 'GMAC/s',
      perCall,
      i => {
        const w = pool + (Math.floor(i / slices) % count) * size
        const begin = (i % slices) * slice
        const scales = format.scale === 'E8M0' ? powers : w + sizes.weight
        const of = [y, rows * 4, 0, w, scales, kernel, span, cols, begin, begin + slice]
        if (!isExact) kernels.matmulBlocks(...of, act, record, 0, tokens, scratch)
        else if (isNibbles(format)) kernels.matmulBlocksExact(...of, act, record, 0, tokens, scratch)
        else kernels.matmulBlocksExact(...of, work, cols * 4, 0, tokens, scratch)
      },
      setUp,
    )
  }
  for (const name of BLOCK_FORMATS.keys()) for (const tokens of [1, 4, 128]) blocks(name, 'fast', tokens)
  for (const name of ['q4_k', 'q6_k', 'mxfp4', 'iq4_xs']) for (const tokens of [1, 128]) blocks(name, 'exact', tokens)
  matrix('head', 'fast', 4, 64, 32768, 2048, 1)
  matrix('qkv', 'fast', 4, 64, 8192, 2048, 1)
  matrix('o', 'fast', 4, 64, 2048, 4096, 1)
  matrix('gate', 'fast', 4, 64, 512, 2048, 1)
  matrix('down', 'fast', 4, 64, 2048, 512, 1)
  matrix('qkv', 'fast', 4, 32, 8192, 2048, 1)
  matrix('qkv', 'fast', 4, 128, 8192, 2048, 1)
  matrix('qkv', 'fast', 2, 64, 8192, 2048, 1)
  matrix('qkv', 'fast', 8, 64, 8192, 2048, 1)
  matrix('router', 'fast', 8, 64, 256, 2048, 1)
  for (const tokens of [2, 3, 4, 8, 128]) matrix('qkv', 'fast', 4, 64, 8192, 2048, tokens)
  for (const tokens of [2, 4, 8]) matrix('gate', 'fast', 4, 64, 512, 2048, tokens)
  for (const tokens of [2, 4, 8]) matrix('down', 'fast', 4, 64, 2048, 512, tokens)
  for (const tokens of [4, 128]) matrix('qkv', 'fast', 8, 64, 8192, 2048, tokens)
  for (const tokens of [4, 128]) matrix('qkv', 'fast', 4, 32, 8192, 2048, tokens)
  matrix('qkv', 'fast', 2, 64, 8192, 2048, 128)
  matrix('qkv', 'exact', 4, 64, 8192, 2048, 1)
  matrix('qkv', 'exact', 2, 64, 8192, 2048, 1)
  matrix('qkv', 'exact', 8, 64, 8192, 2048, 1)
  for (const tokens of [4, 128]) matrix('qkv', 'exact', 4, 64, 8192, 2048, tokens)
  for (const tokens of [1, 4, 128]) {
    const unit = tokens === 1 ? 'GB/s' : 'GMAC/s'
    add(`plain BF16 256x2048 T=${tokens}`, unit, (MB / 2) * (tokens === 1 ? 2 : tokens), i => {
      const w = pool + (i % 320) * MB
      kernels.matmulPlain(work, 16448, 0, w, 0, 2048, 0, 256, work + 4 * MB, 8256, 0, tokens, scratch)
    })
  }
  for (const precision of ['Fast', 'Exact']) {
    add(`prepare${precision} 2048`, 'us', 0, () =>
      kernels[`prepare${precision}`](work + MB, 16384, work, 8192, 2048, 4, 64, 0, 1),
    )
  }
  add('rmsNorm 2048', 'us', 0, () => kernels.rmsNorm(work + MB, 8192, work, 8192, work + 2 * MB, 2048, 1e-6, 1))
  add('route 256, 8', 'us', 0, () =>
    kernels.route(work + MB, work + MB + 64, work, 1024, 256, 8, 0, 0, 1, 1, 1, 1, 0, 1, work + 2 * MB),
  )
  add('siluMul 512 x 8', 'us', 0, () => kernels.siluMul(work + MB, 0, work, 0, work + 2 * MB, 0, 1, 0, 4096))
  add('combine 2048 x 8', 'us', 0, () =>
    kernels.combine(work + MB, 0, work, 8256, work + 2 * MB, 8, work, 0, work, 0, 1, 0, 2048),
  )
  for (const tokens of [1, 64]) {
    // Rows lie 64 bytes off powers of two, as the runtime lays them.
    const conv = [32832, work, 32832, work + 16 * MB, work + 17 * MB, work + 18 * MB, 8192, tokens, 0, 8192 / tokens]
    add(`conv1d 8192 T=${tokens}, per token`, 'us', tokens === 1 ? 0 : -1, () =>
      kernels.conv1dSilu(work + 8 * MB, ...conv),
    )
    // States of 2 MB rotate, as those of 30 layers do.
    const rows = [32832, work + 8 * MB + 16384, 32832, work + 4 * MB, work + 4 * MB, 128]
    // Few heads a call, so that calls are short.
    const heads = tokens === 1 ? 8 : 1
    add(`gatedDelta 32 heads 128x128 T=${tokens}, per token`, 'us', (-tokens * heads) / 32, i => {
      const state = pool + (Math.floor(i / 4) % 40) * 4 * MB
      const head = (i * heads) % 32
      const shape = [state, state + 2 * MB, 16, 32, 128, 128, tokens, head, head + heads]
      kernels.gatedDelta(work, 16448, work + 8 * MB, work + 8 * MB + 8192, ...rows, ...shape)
    })
  }
  const pages = work + 32 * MB
  for (const [length, tokens] of [
    [1024, 1],
    [1024, 8],
    [8192, 1],
  ]) {
    add(`attention 16/2 heads of 256 over ${length}, ${tokens} queries, per query`, 'us', -tokens / 8, i => {
      const head = (i % 8) * 2
      const shape = [length - tokens, tokens, 16, 2, 256, 1 / 16, 0, 0, head, head + 2, work + 40 * MB]
      kernels.attention(work + 16 * MB, 16448, work, 32832, 2048, pages, pages + 4096, ...shape)
    })
  }
  return { list: out, prepare: buffer => pageTables(buffer, pages, pool) }
}

function pageTables(buffer, pages, pool) {
  const table = new Uint32Array(buffer, pages, 2048)
  const pageBytes = PAGE_TOKENS * 512 * 4
  for (let i = 0; i < 1024; i++) {
    table[i] = pool + i * 2 * pageBytes
    table[i + 1024] = table[i] + pageBytes
  }
}

async function readerModule() {
  const require = createRequire(import.meta.url)
  const asc = await import(pathToFileURL(join(dirname(require.resolve('assemblyscript/package.json')), 'dist/asc.js')))
  const source = `export function read(address: usize, size: usize): i32 {
    let a = i32x4.splat(0), b = i32x4.splat(0)
    for (const end = address + size; address < end; address += 64) {
      a = i32x4.add(a, v128.load(address)); b = i32x4.add(b, v128.load(address, 16))
      a = i32x4.add(a, v128.load(address, 32)); b = i32x4.add(b, v128.load(address, 48))
    }
    return i32x4.extract_lane(i32x4.add(a, b), 0)
  }`
  const flags = {
    enable: ['simd', 'threads'],
    importMemory: true,
    sharedMemory: true,
    maximumMemory: 65536,
    initialMemory: 1,
    runtime: 'stub',
    optimizeLevel: 3,
  }
  const { binary, stderr } = await asc.compileString(source, flags)
  if (!binary) throw new Error(stderr.toString())
  return WebAssembly.compile(binary)
}

function fillPool(memory) {
  const words = new Uint32Array(memory.buffer)
  let a = 1
  for (let i = 0; i < words.length; i++) {
    a = (Math.imul(a, 1664525) + 1013904223) >>> 0
    // Any word is four good weights; as floats or pairs of BF16 they stay small and finite.
    words[i] = (a & 0x807f807f) | 0x3c003c00
  }
}

/** Kernels that refuse a call with more or fewer arguments than they have: nothing else would tell. */
function counted(kernels) {
  const checked = ([name, kernel]) => [
    name,
    (...args) => {
      if (args.length !== kernel.length) throw new Error(`${name} takes ${kernel.length} arguments, not ${args.length}`)
      kernel(...args)
    },
  ]
  return Object.fromEntries(
    Object.entries(kernels)
      .filter(([, each]) => typeof each === 'function')
      .map(checked),
  )
}

async function runThread({ module, reader, memory, index, only, seconds, control }) {
  const kernels = await instantiateKernels(module, memory)
  const read = new WebAssembly.Instance(reader, { env: { memory } }).exports.read
  const pool = MB
  const work = pool + POOL + index * WORK
  const fill = (at, size, byte) => new Uint8Array(memory.buffer, at, size).fill(byte)
  const noise = (at, size) => {
    const floats = new Float32Array(memory.buffer, at, size / 4)
    for (let i = 0; i < floats.length; i++) floats[i] = Math.sin(i)
  }
  const own = { reader: read, fill, noise }
  const { list, prepare } = cases({ kernels, ...own }, pool, work)
  const once = cases({ kernels: counted(kernels), ...own }, pool, work).list[only]
  once.setUp()
  prepare(memory.buffer)
  once.call(0)
  const { call } = list[only]
  // Warm up until the optimizing compiler's code runs. Then time bursts of a fraction of a millisecond and take the
  // second percentile: what other processes on the machine steal falls out.
  for (let i = 0, end = performance.now() + 150; performance.now() < end; i++) call(i)
  let burst = 1
  const first = performance.now()
  for (let i = 0; i < 10; i++) call(i)
  burst = Math.max(1, Math.round(0.3 / ((performance.now() - first) / 10)))
  Atomics.add(control, 0, 1)
  while (Atomics.load(control, 0) < workerData.threads) {}
  const times = []
  let calls = index * 7
  for (let end = performance.now() + seconds * 1000; performance.now() < end; ) {
    const start = performance.now()
    for (let i = 0; i < burst; i++) call(calls++)
    times.push((performance.now() - start) / burst)
  }
  times.sort((a, b) => a - b)
  const best = { ...list[only], call: undefined, setUp: undefined, ms: times[Math.floor(times.length / 50)] }
  return best
}

if (!isMainThread) {
  if (!hasRelaxedSimd() && workerData.module.simd !== 'baseline') throw new Error('no relaxed SIMD in the worker')
  parentPort.postMessage(await runThread(workerData))
} else {
  const threads = Number(values.threads)
  const memory = new WebAssembly.Memory({
    initial: (MB + POOL + threads * WORK) >> 16,
    maximum: (MB + POOL + threads * WORK) >> 16,
    shared: true,
  })
  fillPool(memory)
  const module = await loadKernels(values.simd)
  const reader = await readerModule()
  const fake = new Proxy({}, { get: () => () => {} })
  const { list } = cases({ kernels: fake, reader: () => {} }, 0, 0)
  console.log(`${module.simd} SIMD, ${threads} thread(s), Node ${process.version}`)
  for (let only = 0; only < list.length; only++) {
    if (positionals.length > 0 && !positionals.some(p => list[only].name.includes(p))) continue
    const control = new Int32Array(new SharedArrayBuffer(16))
    const results = await Promise.all(
      Array.from({ length: threads }, (_, index) => {
        const data = { module, reader, memory, index, only, seconds: Number(values.seconds), control, threads }
        const worker = new Worker(fileURLToPath(import.meta.url), { workerData: data })
        return new Promise((resolve, reject) => worker.on('message', resolve).on('error', reject))
      }),
    )
    const { unit, perCall, name } = results[0]
    const figure =
      unit === 'us'
        ? ((Math.max(...results.map(r => r.ms)) * 1000) / (perCall < 0 ? -perCall : 1)).toFixed(2)
        : results.reduce((sum, r) => sum + perCall / r.ms / 1e6, 0).toFixed(2)
    console.log(`${name.padEnd(70)} ${figure.padStart(9)} ${unit}`)
  }
}
