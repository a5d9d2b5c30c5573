// Three replicas, a Redis, HAProxy, and clients that hold conversations over them, while everything that can break does: the
// store is killed, hangs, is full and has damaged objects, a replica is killed in its answers, another is stopped in order.
// Counts answers, wrong ones (the same conversation must always get the same answer), errors, times to the first token, and
// what of them was waiting for the store, as the servers measure it. Fails where something was lost that need not be.
//
//   node src/lab/scaleOut/faults.mjs [--clients 64] [--seconds 60] [--no-store]
//
// With --no-store replicas have none and nothing breaks: what first tokens take by themselves. Where the programs are is told to
// servers.mjs. A request that is not answered in a minute counts as hung, with how far it had come and how many others were
// answered while it waited: none, where the machine stood still.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { freePort, missing, startHaproxy, startRedis } from './servers.mjs'
import { StoreWaits } from './storeWaits.mjs'

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? fallback : Number(process.argv[at + 1])
}
const clients = option('clients', 64)
const seconds = option('seconds', 60)
const hasStore = !process.argv.includes('--no-store')
const main = fileURLToPath(new URL('../../../dist/apps/cli/main.js', import.meta.url))
const BUDGET = 0.25 // seconds: the default of 0.2, and ten milliseconds for each of a state's few MB
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function startReplica(port, store) {
  const args = [
    'serve',
    '--port',
    String(port),
    '--threads',
    '1',
    ...(hasStore ? ['--store', store] : []),
    '--parallel',
    '16',
    '--max-queue',
    '256',
  ]
  const child = spawn(process.execPath, [main, ...args, '--grace', '20s', '--drain', '2500ms'], { stdio: 'ignore' })
  const ended = new Promise(resolve => child.once('exit', code => resolve(code)))
  for (let tries = 0; tries < 600; tries++) {
    const isReady = await fetch(`http://127.0.0.1:${port}/ready`).then(
      response => response.ok,
      () => false,
    )
    if (isReady) break
    await pause(100)
  }
  return { child, port, ended, pid: child.pid, url: `http://127.0.0.1:${port}` }
}

const absent = ['redis', 'haproxy'].map(missing).filter(line => line !== null)
if (absent.length > 0) {
  console.error(absent.join('\n'))
  process.exit(2)
}
let redis = await startRedis()
const ports = [await freePort(), await freePort(), await freePort()]
const replicas = await Promise.all(ports.map(port => startReplica(port, redis.url)))
const balancer = await startHaproxy(ports)
const answers = new Map() // what a conversation got when it was first held
const phases = new Map()
let phase = 'well'
let isOver = false
let allAnswered = 0
const count = (name, by = 1) => {
  const now = phases.get(phase) ?? { first: [] }
  now[name] = (now[name] ?? 0) + by
  phases.set(phase, now)
  return now
}

async function ask(messages, session, user) {
  const began = performance.now()
  let first = null
  let text = ''
  let stage = 'before its answer began'
  const answeredBefore = allAnswered
  try {
    const response = await fetch(`${balancer.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-session-id': session },
      body: JSON.stringify({ messages, user, max_tokens: 6, temperature: 0, stream: true }),
      signal: AbortSignal.timeout(60_000),
    })
    if (response.status !== 200) return count(`status ${response.status}`) && null
    stage = 'before its first token'
    let rest = ''
    let isDone = false
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      rest += chunk
      const lines = rest.split('\n')
      rest = lines.pop()
      for (const line of lines) {
        if (line === 'data: [DONE]') isDone = true
        else if (line.startsWith('data: ')) {
          const event = JSON.parse(line.slice(6))
          if (event.error) return count('error event') && null
          first ??= performance.now() - began
          stage = 'in its answer'
          text += event.choices[0]?.delta?.content ?? ''
        }
      }
    }
    if (!isDone) return count('cut off') && null
  } catch (error) {
    if (error.name !== 'TimeoutError') return count('connection lost') && null
    count('answered beside those that hung', allAnswered - answeredBefore)
    return count(`HUNG ${stage}`) && null
  }
  const key = JSON.stringify(messages)
  const known = answers.get(key)
  answers.set(key, known ?? text)
  allAnswered++
  const now = count(known === undefined || known === text ? 'answered' : 'WRONG')
  now.first.push(first)
  return text
}

async function client(number) {
  // Every other one sends more than a balancer keeps to send again.
  const user = 'x'.repeat(number % 2 === 0 ? 40_000 : 1)
  for (let round = 0; !isOver; round++) {
    // A conversation is held twice by every twelfth client, so that answers can be compared, each time by another session; then
    // comes a new one: of old ones all replicas would soon have the states in memory, and nobody would ask the store.
    const topic = `${number % 12}-${round >> 1}`
    const messages = [
      { role: 'system', content: 'You tell stories to children and never tire. '.repeat(3) },
      { role: 'user', content: `Tell me story number ${topic}.` },
    ]
    for (let turn = 0; turn < 3 && !isOver; turn++) {
      const text = await ask(messages, `${number}-${round}-${turn % 2}`, user) // every other turn lands elsewhere
      if (text === null) break
      messages.push({ role: 'assistant', content: text }, { role: 'user', content: `And then, ${turn}?` })
    }
  }
}

const scale = seconds / 60
const waits = new StoreWaits()
/** How late a timer is here at worst: on a busy machine that is added to every limit. */
let timerLate = 0
const watchTimers = async () => {
  while (!isOver) {
    const began = performance.now()
    await pause(200)
    timerLate = Math.max(timerLate, (performance.now() - began - 200) / 1000)
  }
}
/** What was waited for the store belongs to the phase that ends. */
const endPhase = async () => {
  Object.assign(count('answered', 0), await waits.look(replicas), { timerLate })
  timerLate = 0
}
const at = async (name, second, work) => {
  if (!hasStore) return
  await pause(Math.max(0, began + second * 1000 * scale - performance.now()))
  await endPhase()
  phase = name
  await work()
}
const began = performance.now()
void watchTimers()
const running = Promise.all(Array.from({ length: clients }, (_, number) => client(number)))
await at('store killed', 10, () => redis.stop())
await at('store back', 16, async () => {
  redis = await startRedis({ port: redis.port })
})
await at('store hangs', 22, () => redis.child.kill('SIGSTOP'))
await at('store goes on', 28, () => redis.child.kill('SIGCONT'))
const admin = new Redis({ port: redis.port })
admin.on('error', () => {})
await at('store full', 32, () => admin.config('SET', 'maxmemory', '1mb', 'maxmemory-policy', 'noeviction'))
await at('bytes flipped', 37, async () => {
  await admin.config('SET', 'maxmemory', '0')
  for (const key of await admin.keys('moeflux:*')) await admin.setrange(key, 300, 'damaged')
})
await at('replica killed', 43, async () => {
  replicas[0].child.kill('SIGKILL')
  replicas[0] = await startReplica(ports[0], redis.url)
})
await at('rolling restart', 50, async () => {
  for (const i of [1, 2]) {
    replicas[i].child.kill('SIGTERM')
    const code = await replicas[i].ended
    if (code !== 0) count(`replica exit ${code}`)
    replicas[i] = await startReplica(ports[i], redis.url)
  }
})
await pause(Math.max(0, began + seconds * 1000 - performance.now()))
isOver = true
await running
await endPhase()
const failures = []
for (const [name, { first, waits, within, longestMs, timerLate, bytes: _, ...counts }] of phases) {
  const sorted = first.toSorted((a, b) => a - b)
  const share = part => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0)
  const upTo = bound => within.get(bound) ?? 0
  const limit = [...within.keys()].find(bound => Number(bound) >= BUDGET + timerLate) ?? '+Inf'
  const late = waits - upTo(limit)
  const timerLateMs = Math.round(timerLate * 1000)
  const store = { waits, within250ms: upTo('0.25'), late, longestSoFarMs: longestMs, timerLateMs }
  console.log(JSON.stringify({ phase: name, ...counts, firstTokenMs: { p50: share(0.5), p99: share(0.99) }, store }))
  const lost = Object.keys(counts).filter(key => key !== 'answered' && name !== 'replica killed')
  if (lost.length > 0) failures.push(`${name}: ${lost.join(', ')}`)
  if (Object.keys(counts).some(key => key === 'WRONG' || key.startsWith('HUNG')))
    failures.push(`${name}: wrong or hung`)
  if (late > 0) failures.push(`${name}: ${late} answers waited more than ${limit} s for the store`)
}
for (const port of ports) {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
  console.log(
    port,
    text
      .match(/^moeflux_(store_(lookups|states|trouble)|prefix_lookups)_total\{.*$/gm)
      ?.join(' ')
      .replaceAll('moeflux_', ''),
  )
}
for (const { child } of replicas) child.kill('SIGKILL')
admin.disconnect()
await Promise.all([balancer.stop(), redis.stop()])
for (const line of failures) console.error(`FAILED ${line}`)
process.exit(failures.length === 0 ? 0 : 1)
