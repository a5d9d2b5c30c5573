// Many streaming clients at once against a server of its own, some of which hang up in the middle; reports latencies,
// tokens per second, refusals and memory. `node src/lab/bench/loadTest.mjs --clients 64 --seconds 60 [--json] [-- serve options]`
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values, positionals } = parseArgs({
  options: {
    clients: { type: 'string', default: '64' },
    seconds: { type: 'string', default: '60' },
    leave: { type: 'string', default: '0.2' }, // share of requests that hang up
    json: { type: 'boolean', default: false },
  },
  allowPositionals: true,
})
const clients = Number(values.clients)
const seconds = Number(values.seconds)
const leaveShare = Number(values.leave)

const main = fileURLToPath(new URL('../../../dist/apps/cli/main.js', import.meta.url))
const server = spawn(process.execPath, [main, 'serve', '--port', '0', ...positionals], {
  stdio: ['ignore', 'ignore', 'pipe'],
})
const ended = once(server, 'close')
const url = await serverUrl()

const firstTokenMs = []
const outcomes = new Map()
const memory = []
let tokens = 0
const count = outcome => outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)

const started = performance.now()
const deadline = started + seconds * 1000
const sampler = setInterval(async () => memory.push(await metric('process_resident_memory_bytes')), 1000)
await Promise.all(Array.from({ length: clients }, (_, i) => client(i)))
clearInterval(sampler)
const elapsed = (performance.now() - started) / 1000

await new Promise(resolve => setTimeout(resolve, 300))
const active = (await metric('moeflux_requests_active')) + (await metric('moeflux_sequences_active'))
const stopping = performance.now()
server.kill('SIGTERM')
const [exitCode] = await ended

firstTokenMs.sort((a, b) => a - b)
const quantile = q => Math.round(firstTokenMs[Math.floor(q * (firstTokenMs.length - 1))] ?? Number.NaN)
const half = memory.slice(Math.floor(memory.length / 2))
const report = {
  clients,
  seconds: Math.round(elapsed),
  outcomes: Object.fromEntries([...outcomes].sort()),
  tokens,
  tokensPerSecond: Math.round(tokens / elapsed),
  firstTokenMs: { p50: quantile(0.5), p95: quantile(0.95), p99: quantile(0.99) },
  memoryMiB: {
    quarter: mib(memory[Math.floor(memory.length / 4)]),
    half: mib(half[0]),
    end: mib(memory.at(-1)),
    peak: mib(Math.max(...memory)),
  },
  activeAtEnd: active,
  stopMs: Math.round(performance.now() - stopping),
  exitCode,
}
console.log(values.json ? JSON.stringify(report) : report)

function serverUrl() {
  let text = ''
  return new Promise((resolve, reject) => {
    server.stderr.setEncoding('utf8').on('data', chunk => {
      if (text.length < 10_000) text += chunk
      const found = /(http:\/\/\S+)/.exec(text)?.[1]
      if (found) resolve(found)
    })
    server.on('close', () => reject(new Error(`the server did not start: ${text}`)))
  })
}

async function metric(name) {
  const text = await (await fetch(`${url}/metrics`)).text()
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
}

async function client(number) {
  for (let turn = 0; performance.now() < deadline; turn++) {
    const hangUp = new AbortController()
    const leaves = Math.random() < leaveShare
    const timer = leaves ? setTimeout(() => hangUp.abort(), Math.random() * 1500) : undefined
    try {
      await request(`Client ${number % 16}, story ${turn % 5}: a little dog`, hangUp.signal)
    } catch (error) {
      count(hangUp.signal.aborted ? 'left' : `failed: ${error.cause?.code ?? error.message}`)
    } finally {
      clearTimeout(timer)
    }
  }
}

async function request(content, signal) {
  const asked = performance.now()
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content }], max_tokens: 24, stream: true }),
    signal,
  })
  if (response.status !== 200) {
    count(String(response.status))
    await response.text()
    if (response.status === 429) await new Promise(resolve => setTimeout(resolve, 200))
    return
  }
  let text = ''
  let seen = false
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk
    const pieces = chunk.split('"content":"').length - 1
    tokens += pieces
    if (!seen && /"content":"[^"]/.test(text)) {
      seen = true
      firstTokenMs.push(performance.now() - asked)
    }
  }
  count(text.endsWith('data: [DONE]\n\n') ? 'answered' : 'cut off')
}

function mib(bytes) {
  return Math.round((bytes ?? Number.NaN) / 2 ** 20)
}
