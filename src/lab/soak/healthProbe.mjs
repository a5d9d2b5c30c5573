// A process of its own that asks /health every 50 ms, whether or not earlier questions were answered, and beside it a
// server that does nothing, so that what the machine itself adds can be told apart. Tells its parent the quantiles so far.
import { Agent, createServer, get } from 'node:http'
import { quantiles } from '../harness/quantiles.mjs'
import { processorWaitMs } from './processorWait.mjs'

const POLL_MS = 50
const REPORT_MS = 5000
const GIVE_UP_MS = 30_000
/** Every so many polls come over a new connection, as from a monitor that keeps none. */
const FRESH_EVERY = 10

const [port, pid] = process.argv.slice(2).map(Number)
const idle = createServer((_, response) => response.end('{"status":"ok"}'))
await new Promise(resolve => idle.listen(0, '127.0.0.1', resolve))

const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
const latencies = { server: [], own: [], idle: [] } // own: without the time that server or probe waited for a processor
const problems = []
const waiting = new Map() // poll -> when it was sent
let polls = 0
let lastAnswer = performance.now()

function poll(target, targetPort) {
  const id = ++polls
  const sent = performance.now()
  const waitedBefore = target === 'server' ? [processorWaitMs(pid), processorWaitMs(process.pid)] : []
  if (target === 'server') waiting.set(id, sent)
  const done = problem => {
    if (target === 'server' && !waiting.delete(id)) return
    const latency = performance.now() - sent
    latencies[target].push(latency)
    if (target === 'idle') return
    // Both may have waited at the same time: no more is taken off than one of them waited.
    const waits = [pid, process.pid].map((each, i) => (processorWaitMs(each) ?? 0) - (waitedBefore[i] ?? 0))
    latencies.own.push(Math.max(0, latency - Math.max(0, ...waits)))
    if (problem === null) lastAnswer = performance.now()
    else problems.push(problem)
  }
  const request = get(
    {
      host: '127.0.0.1',
      port: targetPort,
      path: '/health',
      agent: id % FRESH_EVERY === 0 ? false : agent,
      timeout: GIVE_UP_MS,
    },
    response => {
      let text = ''
      response.setEncoding('utf8').on('data', chunk => (text += chunk))
      response.on('end', () => {
        const isRight = response.statusCode === 200 && text.includes('"status":"ok"')
        done(isRight ? null : `/health said ${response.statusCode} ${text.slice(0, 100)}`)
      })
      response.on('error', error => done(`/health broke off: ${error.message}`))
    },
  )
  request.on('timeout', () => request.destroy(new Error('gave up')))
  request.on('error', error => done(`/health could not be asked: ${error.message}`))
}

const poller = setInterval(() => {
  poll('server', port)
  poll('idle', idle.address().port)
}, POLL_MS)

/** A question that has no answer yet counts for as long as it has waited. */
function report() {
  const now = performance.now()
  const pending = [...waiting.values()].map(sent => now - sent).filter(age => age > POLL_MS)
  const server = quantiles([...latencies.server, ...pending])
  const silentMs = waiting.size === 0 ? 0 : now - lastAnswer
  const [own, idle] = [quantiles(latencies.own), quantiles(latencies.idle)]
  process.send({ server, own, idle, problems: problems.slice(0, 20), silentMs })
}
const reporter = setInterval(report, REPORT_MS)
process.on('disconnect', () => process.exit())
process.on('message', () => {
  clearInterval(poller)
  clearInterval(reporter)
  report()
  process.disconnect()
})
