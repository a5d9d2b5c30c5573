#!/usr/bin/env node
// Compares moeflux with node-llama-cpp on models of the same shape and bits, interleaved: a run of theirs, a run of ours,
// and again, each in a process of its own, so that both meet the same machine. node-llama-cpp is no dependency of this
// project: it is installed in a scratch folder. See README.md here for the set-up.
//
//   node src/lab/peers/sideBySide.mjs memory   --peers DIR [--rounds 3] [--prompt 128] [--tokens 64] [--threads 2] [--model a3b:8 --gguf FILE]
//   node src/lab/peers/sideBySide.mjs capped   --peers DIR --limit 2G|1200M [--read-ahead-kb 128]      (root)
//
// memory: everything in memory. capped: a memory limit below the model, cold files; the peer reads its model from a loop
// device where --read-ahead-kb is given (its best case), else from the disk as it is.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'

const here = dirname(fileURLToPath(import.meta.url))
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    peers: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    prompt: { type: 'string', default: '128' },
    tokens: { type: 'string', default: '64' },
    threads: { type: 'string', default: '2' },
    limit: { type: 'string', default: '2G' },
    'read-ahead-kb': { type: 'string' },
    model: { type: 'string', default: 'a3b:8' },
    gguf: { type: 'string' },
    'our-flags': { type: 'string', default: '' },
  },
})
const mode = positionals[0]
if ((mode !== 'memory' && mode !== 'capped') || !options.peers) {
  console.error('usage: sideBySide.mjs memory|capped --peers DIR [options]; see the top of the file')
  process.exit(2)
}
const peers = resolve(options.peers)
const gguf = join(peers, options.gguf ?? (mode === 'memory' ? 'a3b-8l.gguf' : 'a3b-8l-iq4xs.gguf'))
const capScript = join(here, 'withMemoryCap.sh')
const [preset, layers] = options.model.split(':')
const home = process.env.MOEFLUX_HOME ?? join(homedir(), '.cache/moeflux')
const folder = join(home, 'synthetic', `${preset}-${layers}l-256e-4bit-skew0-seed1`)
const moeflux = join(here, '../../../dist/apps/cli/main.js')

/** A command's standard output, run under the cap where there is one; null where it failed or was killed. */
function run(command, coldFiles, environment = {}) {
  const wrapped =
    mode === 'memory'
      ? command
      : ['bash', capScript, options.limit, ...coldFiles.flatMap(file => ['--cold', file]), '--', ...command]
  const env = { ...process.env, ...environment }
  const { status, stdout, stderr } = spawnSync(wrapped[0], wrapped.slice(1), {
    encoding: 'utf8',
    env,
    maxBuffer: 1 << 26,
  })
  const cap = /^cap: .*$/m.exec(stderr)?.[0]
  if (cap) console.error(`  ${cap}`)
  if (status !== 0) console.error(`  failed with ${status}: ${stderr.trim().split('\n').slice(-3).join(' | ')}`)
  return status === 0 ? stdout : null
}

function runPeer(model) {
  const flags = ['--prompt', options.prompt, '--decode', options.tokens, '--runs', '1', '--threads', options.threads]
  const context = String(Math.max(512, Number(options.prompt) + Number(options.tokens) + 64))
  const script = join(here, 'benchNodeLlamaCpp.mjs')
  const out = run([process.execPath, script, model, ...flags, '--context', context], model === gguf ? [gguf] : [], {
    PEERS_NODE_MODULES: join(peers, 'node_modules'),
  })
  const lines =
    out
      ?.trim()
      .split('\n')
      .map(line => JSON.parse(line)) ?? []
  const result = lines.find(line => line.run === 1)
  if (!result) return null
  const rss = lines.find(line => line.peakRssMB)?.peakRssMB
  return { prefill: result.promptTokS, decode: result.decodeTokS, readMB: result.decodeReadMBPerTok, rss, result }
}

function runOurs() {
  const files = existsSync(folder)
    ? [
        join(folder, 'model_weights.bin'),
        ...readdirSync(join(folder, 'packed_experts')).map(f => join(folder, 'packed_experts', f)),
      ]
    : []
  const flags = [
    '--synthetic',
    options.model,
    '--skew',
    '0',
    '--backend',
    'wasm',
    '--threads',
    options.threads,
    '--json',
  ]
  const size = ['--prompt', options.prompt, '--tokens', options.tokens, '--repeat', mode === 'memory' ? '3' : '1']
  const extra = options['our-flags'].split(' ').filter(Boolean)
  const out = run([process.execPath, moeflux, 'bench', ...flags, ...size, ...extra], files)
  if (out === null) return null
  const r = JSON.parse(out)
  return {
    prefill: r.prefillTokensPerSecond,
    decode: r.decodeTokensPerSecond,
    readMB: r.decode.bytesPerToken / 1e6,
    rss: Math.round(r.peakRssBytes / 1e6),
    result: r,
  }
}

/** Gives the model a read-only block device of its own, whose read-ahead can be chosen. */
function loopDevice(kilobytes) {
  truncateSync(gguf, Math.ceil(statSync(gguf).size / 4096) * 4096) // a device has whole blocks
  const device = execFileSync('losetup', ['-f', '--show', '-r', '--direct-io=on', gguf], { encoding: 'utf8' }).trim()
  writeFileSync(`/sys/block/${device.split('/').pop()}/queue/read_ahead_kb`, kilobytes)
  return device
}

const show = value => (value === undefined || Number.isNaN(value) ? '-' : value.toFixed(value < 10 ? 2 : 1))

const device = mode === 'capped' && options['read-ahead-kb'] ? loopDevice(options['read-ahead-kb']) : null
const rows = []
try {
  for (let round = 1; round <= Number(options.rounds); round++) {
    if (device) execFileSync('blockdev', ['--flushbufs', device])
    const row = { peer: runPeer(device ?? gguf), ours: runOurs() }
    rows.push(row)
    const line = side =>
      side
        ? `prefill ${show(side.prefill)}, decode ${show(side.decode)} tok/s, ${show(side.readMB)} MB/token, peak ${side.rss} MB`
        : 'failed'
    console.log(`round ${round}  peer: ${line(row.peer)}`)
    console.log(`         ours: ${line(row.ours)}`)
    if (row.ours) {
      const { decode, disk, streamingEfficiency, readingEfficiency } = row.ours.result
      const raw = disk?.speeds.at(-1)?.bytesPerSecond ?? Number.NaN
      console.log(
        `         hits ${show(decode.hitRate * 100)}%, wasted ${show(decode.prefetchWastedBytes / 1e6 / decode.tokens)} MB/token, ` +
          `stalled ${show(decode.stallMsPerToken)} ms/token, disk ${show(raw / 1e9)} GB/s, efficiency ${show(streamingEfficiency ?? Number.NaN)}, while reading ${show(readingEfficiency ?? Number.NaN)}, disk read ${show((decode.systemBytesRead ?? Number.NaN) / decode.bytesRead)} times the experts`,
      )
    }
  }
} finally {
  if (device) execFileSync('losetup', ['-d', device])
}
for (const what of ['prefill', 'decode']) {
  const of = side => upperMedian(rows.map(row => row[side]?.[what] ?? 0))
  console.log(`${what}: ours ${show(of('ours'))}, peer ${show(of('peer'))} tok/s: ${show(of('ours') / of('peer'))}×`)
}
