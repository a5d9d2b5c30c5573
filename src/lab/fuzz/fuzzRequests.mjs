// Thousands of broken requests for a server of its own. Each must be answered in time, with a status that is not the
// server's fault and in the shape of its API; what can be repeated must say the same streamed and whole; and between them
// the server must be alive and its answers right.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ANSWER_PATHS, answerKey, readAnswer, readRefusal } from '../harness/answers.mjs'
import { exchange, rawExchange } from '../harness/exchange.mjs'
import { seededRandom } from '../harness/random.mjs'
import { schemaMisfit } from '../harness/schemaFit.mjs'
import { startServer } from '../harness/serverProcess.mjs'
import { brokenRequest, REQUEST_KINDS } from './brokenRequests.mjs'

const AT_ONCE = 6
const LIMIT_MS = 60_000 // several answers that fill the small context may be before it
const LOOK_EVERY = 100
const IDLE_MS = 10_000
const CONTEXT = 256
export const KINDS = REQUEST_KINDS

const json = { 'content-type': 'application/json' }
const KNOWN = [
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Tell me a story' }], temperature: 0, max_tokens: 8 }],
  ['/v1/messages', { messages: [{ role: 'user', content: 'Who are you?' }], temperature: 0, max_tokens: 8 }],
  ['/v1/completions', { prompt: 'Once upon a time', temperature: 0, max_tokens: 8, seed: 1 }],
]

export async function fuzzRequests({ seed, runs, only, single, say }) {
  const folder = await mkdtemp(join(tmpdir(), 'moeflux-fuzz-'))
  const limits = ['--context', String(CONTEXT), '--max-body', '1MiB', '--receive-timeout', '2', '--reader-timeout', '5']
  const server = await startServer({ folder, args: ['--backend', 'wasm', '--threads', '1', ...limits] })
  const fuzz = new RequestFuzz(server, seed, only, say)
  try {
    if (single === undefined) await fuzz.run(runs)
    else await fuzz.show(single)
  } finally {
    await fuzz.stop()
    await rm(folder, { recursive: true, force: true })
  }
  return fuzz.report
}

class RequestFuzz {
  #server
  #seed
  #kinds
  #say
  #right = []

  constructor(server, seed, kinds, say) {
    this.#server = server
    this.#seed = seed
    this.#kinds = kinds
    this.#say = say
    this.report = { seed, runs: 0, statuses: {}, repeated: 0, slowestMs: 0, problems: [] }
  }

  async run(runs) {
    for (const known of KNOWN) this.#right.push(await this.#answer(known))
    for (let next = 0; next < runs && this.#server.exit() === null; next += LOOK_EVERY) {
      let index = next
      const end = Math.min(runs, next + LOOK_EVERY)
      const worker = async () => {
        while (index < end) await this.#one(index++)
      }
      await Promise.all(Array.from({ length: AT_ONCE }, worker))
      await this.#look(`after request ${end}`)
      this.#say(`${this.report.runs} requests, ${this.report.problems.length} problems`)
    }
  }

  async show(index) {
    const request = brokenRequest(seededRandom(this.#seed, index), this.#kinds)
    this.#say(JSON.stringify({ ...request, body: undefined, raw: undefined }))
    this.#say((request.raw ?? request.body)?.toString('latin1').slice(0, 4000))
    const reply = await this.#one(index)
    this.#say(`${reply.end} ${reply.status} ${reply.error} ${reply.text.slice(0, 2000)}`)
    this.#say(this.#server.log())
  }

  async stop() {
    if (this.#server.exit() === null) await this.#waitUntilIdle()
    const exit = this.#server.exit() ?? (await this.#server.stop(10_000))
    if (exit.code !== 0 || exit.isKilled) this.#problem(null, `the server ended with ${exit.code ?? exit.signal}`)
    const stack = /^.*\n\s+at .*$/m.exec(this.#server.log())
    if (stack !== null) this.#problem(null, `the log has a stack: ${stack[0].slice(0, 300)}`)
  }

  async #one(index) {
    const request = brokenRequest(seededRandom(this.#seed, index), this.#kinds)
    const { port } = this.#server
    const reply = request.raw
      ? await rawExchange({ port, bytes: request.raw, limitMs: LIMIT_MS })
      : await exchange({ port, ...request, limitMs: LIMIT_MS })
    const { report } = this
    report.runs++
    report.slowestMs = Math.max(report.slowestMs, Math.round(reply.milliseconds))
    const label = `${request.kind}: ${reply.status ?? reply.end}`
    report.statuses[label] = (report.statuses[label] ?? 0) + 1
    const problem = problemOf(request, reply) ?? (await this.#problemOfRepetition(request, reply))
    if (problem !== null) this.#problem(index, problem, request, reply)
    return reply
  }

  /** An answer that follows from its request must be the same the other way: streamed, or whole. */
  async #problemOfRepetition(request, reply) {
    if (reply.status !== 200 || !ANSWER_PATHS.includes(request.path) || request.kind !== 'fields') return null
    const body = JSON.parse(new TextDecoder().decode(request.body)) // which takes a byte order mark away, as the server does
    if (body.temperature !== 0 && !Number.isInteger(body.seed)) return null
    const first = readAnswer(request.path, reply)
    const other = { ...body, stream: !first.isStream, stream_options: undefined }
    const again = await this.#post(request.path, other)
    if (again.status === 429) return null
    this.report.repeated++
    if (again.status !== 200) return `asked again ${first.isStream ? 'whole' : 'as a stream'}: status ${again.status}`
    const [a, b] = [answerKey(first), answerKey(readAnswer(request.path, again))]
    return a === b
      ? null
      : `${first.isStream ? 'streamed' : 'whole'} ${a.slice(0, 300)}, the other way ${b.slice(0, 300)}`
  }

  async #look(when) {
    const health = await exchange({ port: this.#server.port, method: 'GET', path: '/health', limitMs: 10_000 })
    if (health.status !== 200) return this.#problem(null, `${when}: /health said ${health.status ?? health.end}`)
    for (const [i, known] of KNOWN.entries()) {
      const answer = await this.#answer(known)
      if (answer !== this.#right[i]) this.#problem(null, `${when}: answered ${answer}, right is ${this.#right[i]}`)
    }
  }

  async #answer([path, body]) {
    const reply = await this.#post(path, body)
    return reply.status === 200 ? answerKey(readAnswer(path, reply)) : `${reply.status ?? reply.end} ${reply.text}`
  }

  #post(path, body) {
    const bytes = Buffer.from(JSON.stringify(body))
    return exchange({ port: this.#server.port, path, headers: json, body: bytes, limitMs: LIMIT_MS })
  }

  async #waitUntilIdle() {
    const until = performance.now() + IDLE_MS
    let active = Number.NaN
    while (performance.now() < until) {
      active = await this.#server.metric('moeflux_requests_active').catch(() => Number.NaN)
      if (active === 0) return
      await new Promise(resolve => setTimeout(resolve, 100))
    }
    this.#problem(null, `still ${active} requests active at the end`)
  }

  #problem(index, problem, request = null, reply = null) {
    const again = `node src/lab/fuzz/fuzz.mjs requests --seed ${this.#seed}${index === null ? '' : ` --case ${index}`}`
    const input =
      request && `${request.method} ${request.path} ${(request.raw ?? request.body)?.toString('latin1').slice(0, 1500)}`
    const target = request === null ? 'server' : `${request.kind} ${request.path}`
    this.report.problems.push({ target, problem, again, input, reply: reply?.text.slice(0, 500) })
  }
}

function problemOf(request, reply) {
  const { end, status } = reply
  if (end === 'late') return `no end after ${LIMIT_MS} ms`
  if (status === null) return request.isHttpRefusal ? null : `closed without a reply (${reply.error})`
  if (status >= 500) return `status ${status}: ${reply.text.slice(0, 300)}`
  if (end !== 'whole') return request.isHttpRefusal ? null : `broken off (${reply.error})`
  try {
    if (status >= 400) {
      const isBare = request.isHttpRefusal && (reply.text === '' || request.raw !== undefined)
      if (!isBare && request.method !== 'HEAD') readRefusal(errorPath(request), reply)
    } else if (status === 200 && ANSWER_PATHS.includes(request.path) && request.method === 'POST') {
      const answer = readAnswer(request.path, reply)
      if (!answer.isEnded) return 'the stream ends without its end event'
      if (['server_error', 'api_error'].includes(answer.error?.type))
        return `an error in the stream: ${answer.error.message}`
      return request.schema === undefined ? null : formProblem(request.schema, answer)
    }
  } catch (error) {
    return `status ${status}, and the reply cannot be read: ${error.message}: ${reply.text.slice(0, 200)}`
  }
  return null
}

/** Which API's errors a request gets: Anthropic's where it says so. */
function errorPath({ path, headers }) {
  if (headers['anthropic-version'] !== undefined) return '/v1/messages'
  return URL.canParse(path, 'http://localhost') ? new URL(path, 'http://localhost').pathname : path
}

/** An answer that ended by itself must fit the schema, however strange that is. */
function formProblem(schemaText, { choices }) {
  for (const { text, finish } of choices) {
    if (!['stop', 'end_turn', 'completed'].includes(finish)) continue
    const misfit = schemaMisfit(JSON.parse(schemaText), text)
    if (misfit !== null) return `the answer ${text.slice(0, 200)} does not fit its schema: ${misfit}`
  }
  return null
}
