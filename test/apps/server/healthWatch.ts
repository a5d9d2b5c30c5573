// Asks a server for /health again and again from a thread of its own, so that the test's own work does not count.
import { Worker } from 'node:worker_threads'

const LOOK = `
const { parentPort, workerData } = require('node:worker_threads')
const { get, Agent } = require('node:http')
const agent = new Agent({ keepAlive: true, maxSockets: 1 })
const times = []
let isOver = false
parentPort.once('message', () => { isOver = true })
function look() {
  if (isOver) { agent.destroy(); return parentPort.postMessage(times) }
  const started = performance.now()
  const next = status => {
    times.push(status === 200 ? performance.now() - started : Infinity)
    if (times.length === 1) parentPort.postMessage('looking')
    setTimeout(look, 5)
  }
  get(workerData + '/health', { agent }, reply => reply.resume().on('end', () => next(reply.statusCode)))
    .on('error', () => next(0))
}
look()
`

/**
 * Runs `work`; tells how often /health was answered meanwhile, and whether one answer took long: more than a second, and on
 * a machine with much else to do more than half of the time that the work took.
 */
export async function healthDuring<T>(
  url: string,
  work: () => Promise<T>,
): Promise<{ result: T; answers: number; silences: number[] }> {
  const worker = new Worker(LOOK, { eval: true, workerData: url })
  const message = () => new Promise(resolve => worker.once('message', resolve))
  await message()
  try {
    const started = performance.now()
    const result = await work()
    const longMs = Math.max(1_000, (performance.now() - started) / 2)
    const times = message()
    worker.postMessage('over')
    const all = (await times) as number[]
    return { result, answers: all.length - 1, silences: all.filter(time => time > longMs) }
  } finally {
    await worker.terminate()
  }
}
