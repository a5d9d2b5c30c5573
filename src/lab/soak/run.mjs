// The soak itself: clients for so many minutes, then a look at what is left once they have gone, the whole catalogue once
// more in peace, and a stop in the middle of another crowd.

import { setMaxListeners } from 'node:events'
import { appendFileSync, writeFileSync } from 'node:fs'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { exchange } from '../harness/exchange.mjs'
import { quantiles } from '../harness/quantiles.mjs'
import { startServer } from '../harness/serverProcess.mjs'
import { Faults, FILE_FAULTS } from './faults.mjs'
import { Gauges } from './gauges.mjs'
import { watchHealth } from './health.mjs'
import { judge } from './judge.mjs'
import { makeRequest, REQUEST_KINDS } from './traffic.mjs'
import { changedFiles } from './world.mjs'

const PROGRESS_MS = 10_000
const SILENT_MS = 20_000 // without an answer of /health: nothing will come any more
const IDLE_MS = 10_000 // until nothing runs any more after the clients have gone
const CROWD_BEFORE_STOP_MS = 1500
const STOP_MS = 10_000
const MAX_PROBLEMS = 1000
const ENOUGH_MS = 30_000 // of fewer samples gauges cannot say what grows
const HEALTH_BOUNDS = { high: 250, max: 1000 } // ms
const MANY_POLLS = 5000 // of fewer the 99.9th percentile is the slowest few, which a busy machine makes: the 99th is taken
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

/** Few experts fit into memory, so that files are read all the time; few may wait, so that some are turned away. */
export function serverArguments({ modelFolder, storeFolder, contextLength }, { threads }) {
  const limits = ['--parallel', '8', '--max-queue', '60', '--reader-timeout', '5', '--receive-timeout', '15']
  const memory = ['--expert-memory', '3MB', '--context', String(contextLength), '--snapshot-dir', storeFolder]
  return ['--model', modelFolder, '--backend', 'wasm', '--threads', String(threads), ...memory, ...limits]
}

export async function runSoak(world, options, say) {
  const soak = new Soak(world, options, say)
  await soak.start()
  try {
    await soak.serveClients()
    await soak.lookAtRest()
  } finally {
    await soak.stopInTheMiddle()
  }
  return soak.report()
}

class Soak {
  #world
  #options
  #say
  #server
  #faults
  #gauges
  #health
  #healthSummary
  #started
  #seconds
  #outcomes = new Map() // kind -> label -> count
  #problems = []
  #compared = 0
  #requests = 0
  #latencies = []
  #isStopping = false
  #givenUp = new AbortController()
  #stop = null

  constructor(world, options, say) {
    this.#world = world
    this.#options = options
    this.#say = say
    setMaxListeners(0, this.#givenUp.signal)
  }

  async start() {
    const { folder, modelFolder, storeFolder, without } = this.#world
    await mkdir(storeFolder, { recursive: true })
    this.#server = await startServer({ folder, args: serverArguments(this.#world, this.#options) })
    this.#faults = new Faults({ seed: this.#options.seed, modelFolder, storeFolder, without })
  }

  async serveClients() {
    const { minutes, clients } = this.#options
    this.#started = performance.now()
    const deadline = this.#started + minutes * 60_000
    this.#gauges = new Gauges(this.#server.pid)
    this.#health = watchHealth(this.#server)
    this.#faults.start()
    const progress = setInterval(() => this.#say(this.#progressLine()), PROGRESS_MS)
    const watchdog = setInterval(() => this.#giveUpWhereSilent(), 1000)
    await this.#crowd(clients, () => performance.now() < deadline && !this.#isEnough && this.#isAlive)
    clearInterval(progress)
    clearInterval(watchdog)
    this.#gauges.stop()
    await this.#faults.stop()
    this.#seconds = (performance.now() - this.#started) / 1000
    const exit = this.#server.exit()
    if (exit !== null) this.#problem('server', `ended by itself with ${exit.code ?? exit.signal}`)
  }

  /** Everything is as it was: nothing may run, every answer must be right (streamed where the right one was whole). */
  async lookAtRest() {
    if (this.#isAlive) {
      await this.#waitUntilIdle()
      const before = this.#compared
      for (const [index, entry] of this.#world.catalogue.entries()) {
        const body = Buffer.from(JSON.stringify({ ...entry.body, stream: index % 2 === 1 }))
        const headers = { 'content-type': 'application/json' }
        const request = { id: `rest.${index}`, kind: 'at rest', path: entry.path, body, headers, manner: {}, entry }
        await this.#send({ ...request, method: 'POST', statuses: [200], isCompared: true })
      }
      const want = this.#world.catalogue.length
      const right = this.#compared - before
      if (right !== want) this.#problem('at rest', `${right} of ${want} answers are right`)
    }
    await this.#health.stop()
    this.#healthSummary = this.#health.summary()
    this.#judgeHealth()
    for (const [name, gauge] of Object.entries(this.#gauges.summary())) {
      if (!gauge.isFlat) this.#problem('gauges', `${name} grew from ${gauge.second} to ${gauge.last}`)
    }
  }

  async stopInTheMiddle() {
    const server = this.#server
    if (server.exit() !== null) return this.#writeLog()
    let isStopped = false
    const crowd = this.#crowd(this.#isAlive ? this.#options.clients : 0, () => !isStopped, 'last')
    await pause(CROWD_BEFORE_STOP_MS)
    this.#isStopping = true
    this.#stop = await server.stop(STOP_MS)
    isStopped = true
    await crowd
    const { code, isKilled, milliseconds } = this.#stop
    if (isKilled) this.#problem('stop', `SIGTERM did not end it in ${STOP_MS} ms`)
    else if (code !== 0) this.#problem('stop', `exit code ${code} after ${milliseconds} ms`)
    const left = server.leftovers()
    if (left.length > 0) this.#problem('stop', `left in the temporary folder: ${left.slice(0, 5).join(', ')}`)
    const parts = (await readdir(this.#world.storeFolder).catch(() => [])).filter(name => /^\..+-.+\.part$/.test(name))
    if (parts.length > 0) this.#problem('stop', `half-written files in the store: ${parts.slice(0, 5).join(', ')}`)
    const changed = await changedFiles(this.#world.modelFolder)
    if (changed.length > 0) this.#problem('stop', `files of the model have changed: ${changed.join(', ')}`)
    this.#writeLog()
  }

  report() {
    const { seed, minutes, clients, threads, without } = this.#options
    return {
      seed,
      minutes,
      clients,
      threads,
      without,
      seconds: Math.round(this.#seconds),
      requests: this.#requests,
      outcomes: Object.fromEntries([...this.#outcomes].map(([kind, labels]) => [kind, Object.fromEntries(labels)])),
      compared: this.#compared,
      answerMs: quantiles(this.#latencies),
      healthMs: this.#healthSummary,
      gauges: this.#gauges.summary(),
      processorWait: this.#gauges.processorWait(),
      faults: this.#faults.counts,
      stop: this.#stop,
      problems: this.#problems,
      folder: this.#problems.length > 0 ? this.#world.folder : null,
    }
  }

  /** Half a minute, as many requests as were wanted, some of them compared, every kind of them, and each kind of broken file. */
  get #isEnough() {
    const { enoughRequests, without } = this.#options
    if (performance.now() - this.#started < ENOUGH_MS) return false
    if (this.#requests < enoughRequests || this.#compared < enoughRequests / 20) return false
    const happened = [...this.#outcomes.keys(), ...Object.keys(this.#faults.counts)]
    return [...REQUEST_KINDS, ...FILE_FAULTS].every(name => without.includes(name) || happened.includes(name))
  }

  get #isAlive() {
    return this.#server.exit() === null && !this.#givenUp.signal.aborted
  }

  #giveUpWhereSilent() {
    const { silentMs } = this.#health.summary()
    if (silentMs < SILENT_MS || !this.#isAlive) return
    this.#problem('health', `silent for ${Math.round(silentMs / 1000)} s: the soak is given up`)
    this.#givenUp.abort()
  }

  async #crowd(clients, goesOn, prefix = '') {
    const one = async client => {
      for (let turn = 0; goesOn(); turn++) await this.#ask(client, turn)
    }
    await Promise.all(Array.from({ length: clients }, (_, client) => one(`${prefix}${client}`)))
  }

  async #ask(client, turn) {
    const request = makeRequest(this.#world, this.#options.seed, client, turn)
    const { label, reply } = await this.#send(request)
    if (label === '200' && request.follow) {
      for (const next of request.follow(reply)) await this.#send({ ...next, id: request.id })
    }
    // Who was turned away, or finds nobody there, does not come back at once.
    if (label === '429' || label === '503' || reply.status === null) await pause(200 + (turn % 7) * 100)
  }

  async #send(request) {
    const from = performance.now()
    const { path, method, headers, body, manner } = request
    const limits = { limitMs: this.#options.answerMs, signal: this.#givenUp.signal }
    const reply = await exchange({ port: this.#server.port, method, path, headers, body, manner, ...limits })
    const to = performance.now()
    const verdict = judge(request, reply, {
      isFileBroken: this.#faults.isFileBroken(from, to),
      isStopping: this.#isStopping,
      secretPath: this.#world.folder,
    })
    this.#requests++
    if (verdict.isCompared) this.#compared++
    if (reply.end === 'whole' && reply.status === 200) this.#latencies.push(reply.milliseconds)
    const labels = this.#outcomes.get(request.kind) ?? new Map()
    this.#outcomes.set(request.kind, labels.set(verdict.label, (labels.get(verdict.label) ?? 0) + 1))
    if (verdict.problem !== null) this.#problem(request.kind, verdict.problem, { request, reply })
    return { label: verdict.label, reply }
  }

  async #waitUntilIdle() {
    const until = performance.now() + IDLE_MS
    let active = Number.NaN
    while (performance.now() < until) {
      try {
        const names = ['moeflux_requests_active', 'moeflux_sequences_active', 'moeflux_sequences_waiting']
        active = 0
        for (const name of names) active += await this.#server.metric(name)
        if (active === 0) return
      } catch {
        active = Number.NaN
      }
      await pause(100)
    }
    this.#problem('at rest', `still ${active} requests or sequences active ${IDLE_MS} ms after the last client left`)
  }

  #judgeHealth() {
    const { server, own, problems } = this.#healthSummary
    const { high: bound, max } = HEALTH_BOUNDS
    const judged = this.#options.isMachineShared ? own : server
    const [name, high] = judged.count < MANY_POLLS ? ['99th', judged.p99] : ['99.9th', judged.p999]
    if (server.count === 0) this.#problem('health', 'was never answered')
    if (high > bound) this.#problem('health', `${name} percentile ${high} ms, want ${bound}`)
    if (judged.max > max) this.#problem('health', `slowest ${judged.max} ms, want ${max}`)
    for (const problem of problems.slice(0, 5)) this.#problem('health', problem)
  }

  /** Everything that is needed to see it again goes into a file beside the server's log. */
  #problem(kind, problem, about = null) {
    if (this.#problems.length >= MAX_PROBLEMS) return
    const seconds = this.#started === undefined ? 0 : Math.round((performance.now() - this.#started) / 100) / 10
    const entry = { kind, problem, seconds }
    if (about !== null) {
      const { id, path, what, manner, entry: catalogued } = about.request
      Object.assign(entry, { id, path, what: what ?? catalogued?.name, manner, status: about.reply.status })
      entry.again = `node src/lab/soak/soak.mjs --seed ${this.#options.seed} --request ${id}`
    }
    this.#problems.push(entry)
    const details = {
      ...entry,
      reply: about?.reply.text.slice(0, 2000),
      body: about?.request.body?.toString().slice(0, 4000),
    }
    appendFileSync(join(this.#world.folder, 'problems.jsonl'), `${JSON.stringify(details)}\n`)
    if (this.#problems.length <= 20) this.#say(`WRONG ${kind} ${entry.id ?? ''}: ${problem}`)
  }

  #writeLog() {
    writeFileSync(join(this.#world.folder, 'server.log'), this.#server.log())
  }

  #progressLine() {
    const counts = new Map()
    for (const labels of this.#outcomes.values()) {
      for (const [label, count] of labels) counts.set(label, (counts.get(label) ?? 0) + count)
    }
    const { server } = this.#health.summary()
    const gauge = this.#gauges.last
    const seconds = Math.round((performance.now() - this.#started) / 1000)
    const outcomes = [...counts].sort().map(([label, count]) => `${label} ${count}`)
    const memory =
      gauge === null
        ? ''
        : ` · ${Math.round(gauge.memoryBytes / 2 ** 20)} MiB, ${gauge.handles} handles, ${gauge.threads} threads`
    return `${seconds} s · ${outcomes.join(', ')} · ${this.#compared} compared · health ${server.p999}/${server.max} ms${memory} · ${this.#problems.length} problems`
  }
}
