#!/usr/bin/env node
// moeflux and wllama (llama.cpp as WASM) in headless Chromium, in turns. Each visit has a fresh profile: a first visit, nothing
// is stored. wllama is no dependency of this project: it is installed in a scratch folder. See README.md here for the set-up.
//
//   node src/lab/peers/inTab.mjs --model FOLDER [--peers DIR --gguf FILE] [--rounds 3] [--threads 2] [--tokens 64]
//
// FOLDER is a packed model, FILE the same one for wllama; without it moeflux runs alone. Of each visit it prints the seconds to open, those from
// the first prompt to its first token, and requests and bytes until then; after that the speed of three more prompts and answers.
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, extname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { chromium } from 'playwright-core'
import { upperMedian } from '../../../dist/base/median.js'
import { unpackChromium } from '../harness/unpackChromium.mjs'

const repository = join(dirname(fileURLToPath(import.meta.url)), '../../..')
const { values: options } = parseArgs({
  options: {
    model: { type: 'string' },
    peers: { type: 'string' },
    gguf: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: '2' },
    tokens: { type: 'string', default: '64' },
    prompt: { type: 'string', default: '256' }, // letters
  },
})
if (!options.model || (options.gguf !== undefined) !== (options.peers !== undefined)) {
  console.error('usage: inTab.mjs --model FOLDER [--peers DIR --gguf FILE]; see the top of the file')
  process.exit(2)
}
const RUNS = 4 // the first is the first prompt
const VISIT_MS = 300_000 // to open
const ANSWER_MS = 180_000

/** What a page does: opens the model, then answers prompts of letters by chance; both sides get the same ones. */
const pages = {
  moeflux: `
    const { openModel } = await import('/dist/browser.js')
    const model = await openModel('/model/', { backend: 'wasm', threads: ${options.threads}, contextLength: 1024 })
    const session = await model.createSession()
    window.opened = performance.now()
    window.describe = model.info.backendDescription
    window.ask = async prompt => {
      const { usage } = await session.complete({ prompt, maxTokens: ${options.tokens}, temperature: 1 }).answer()
      const { promptTokens, promptSeconds, answerTokens, answerSeconds } = usage
      return { promptTokens, promptSeconds, answerTokens, answerSeconds }
    }`,
  wllama: `
    const { Wllama } = await import('/wllama/index.js')
    const wllama = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, { suppressNativeLog: true })
    const load = { n_ctx: 1024, n_threads: ${options.threads}, n_gpu_layers: 0, useCache: false }
    await wllama.loadModelFromUrl(location.origin + '/model.gguf', load)
    window.opened = performance.now()
    window.describe = 'wllama, ' + wllama.getNumThreads() + ' threads'
    window.ask = async prompt => {
      const request = { prompt, max_tokens: ${options.tokens}, temperature: 1, ignore_eos: true, cache_prompt: false }
      const { timings } = await wllama.createCompletion(request)
      const { prompt_n, prompt_ms, predicted_n, predicted_ms } = timings
      return { promptTokens: prompt_n, promptSeconds: prompt_ms / 1000, answerTokens: predicted_n, answerSeconds: predicted_ms / 1000 }
    }`,
}

const mounts = [
  ['/dist/', join(repository, 'dist')],
  ['/model/', resolve(options.model)],
  ...(options.peers ? [['/wllama/', join(resolve(options.peers), 'node_modules/@wllama/wllama/esm')]] : []),
]
const types = { '.js': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json' }
let sent = { requests: 0, bytes: 0 }

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://localhost')
  const headers = {
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-embedder-policy': 'require-corp',
    'accept-ranges': 'bytes',
  }
  const page = pages[pathname.slice(1)]
  if (page !== undefined) {
    response.writeHead(200, { ...headers, 'content-type': 'text/html' })
    response.end(`<!doctype html><script type="module">try {${page}} catch (e) { window.failed = String(e) }</script>`)
    return
  }
  const mount = mounts.find(([prefix]) => pathname.startsWith(prefix))
  const file =
    pathname === '/model.gguf' ? resolve(options.gguf) : mount && join(mount[1], pathname.slice(mount[0].length))
  if (!file || !existsSync(file) || !statSync(file).isFile()) {
    response.writeHead(404, headers).end()
    return
  }
  const { size, mtimeMs } = statSync(file)
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '')
  const start = range ? Number(range[1]) : 0
  const end = range?.[2] ? Math.min(Number(range[2]), size - 1) : size - 1
  response.writeHead(range ? 206 : 200, {
    ...headers,
    'content-type': types[extname(file)] ?? 'application/octet-stream',
    'content-length': end - start + 1,
    etag: `"${size}-${mtimeMs}"`,
    ...(range && { 'content-range': `bytes ${start}-${end}/${size}` }),
  })
  if (request.method === 'HEAD') return void response.end()
  if (pathname.startsWith('/model')) sent = { requests: sent.requests + 1, bytes: sent.bytes + end - start + 1 }
  createReadStream(file, { start, end }).pipe(response)
})
await new Promise(listening => server.listen(0, '127.0.0.1', listening))
const origin = `http://localhost:${server.address().port}`
const { executable, environment } = unpackChromium()

/** wllama stops answering now and then. */
async function within(work, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} after ${ANSWER_MS / 1000} s`)), ANSWER_MS)
  })
  work.catch(() => {}) // ends with the page
  return await Promise.race([work, late]).finally(() => clearTimeout(timer))
}

async function visit(name, prompts) {
  const profile = mkdtempSync(join(tmpdir(), 'moeflux-visit-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: executable,
    env: { ...process.env, ...environment },
    args: ['--no-sandbox', '--headless=new', '--disable-gpu', '--disable-dev-shm-usage'],
  })
  try {
    const page = await context.newPage()
    sent = { requests: 0, bytes: 0 }
    await page.goto(`${origin}/${name}`)
    await page.waitForFunction(() => window.ask !== undefined || window.failed !== undefined, null, {
      timeout: VISIT_MS,
    })
    const { failed, opened, describe } = await page.evaluate(() => {
      const { failed, opened, describe } = window
      return { failed, opened, describe }
    })
    if (failed) throw new Error(`${name}: ${failed}`)
    const atOpen = sent
    const runs = []
    let afterFirst = sent
    for (const prompt of prompts) {
      runs.push(
        await within(
          page.evaluate(text => window.ask(text), prompt),
          `${name}: no answer`,
        ),
      )
      if (runs.length === 1) afterFirst = sent
    }
    return { name, describe, openSeconds: opened / 1000, atOpen, afterFirst, runs }
  } finally {
    await context.close()
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
  }
}

const letters = 'abcdefghijklmnopqrstuvwxyz'
const text = length => Array.from({ length }, () => letters[Math.floor(Math.random() * 26)]).join('')
const rate = (runs, what) => upperMedian(runs.map(run => run[`${what}Tokens`] / run[`${what}Seconds`]))
const megabytes = bytes => (bytes / 1e6).toFixed(1)
const visits = []
for (let round = 1; round <= Number(options.rounds); round++) {
  const prompts = Array.from({ length: RUNS }, () => text(Number(options.prompt)))
  for (const name of options.gguf ? ['wllama', 'moeflux'] : ['moeflux']) {
    const result = await visit(name, prompts).catch(error => {
      console.error(String(error))
      return null
    })
    if (result === null) continue
    visits.push(result)
    const [first, ...later] = result.runs
    console.log(
      `round ${round}  ${result.describe}: open ${result.openSeconds.toFixed(1)} s (${result.atOpen.requests} requests, ` +
        `${megabytes(result.atOpen.bytes)} MB), first token of ${first.promptTokens} after ${first.promptSeconds.toFixed(2)} s ` +
        `(${result.afterFirst.requests - result.atOpen.requests} requests, ${megabytes(result.afterFirst.bytes - result.atOpen.bytes)} MB); ` +
        `then prompt ${rate(later, 'prompt').toFixed(1)}, decode ${rate(later, 'answer').toFixed(1)} tok/s`,
    )
  }
}
for (const name of ['wllama', 'moeflux']) {
  const own = visits.filter(result => result.name === name)
  if (own.length === 0) continue
  const of = read => upperMedian(own.map(read)).toFixed(2)
  console.log(
    `${name}: open ${of(v => v.openSeconds)} s, first token ${of(v => v.runs[0].promptSeconds)} s, together ` +
      `${of(v => v.openSeconds + v.runs[0].promptSeconds)} s, prompt ${of(v => rate(v.runs.slice(1), 'prompt'))}, ` +
      `decode ${of(v => rate(v.runs.slice(1), 'answer'))} tok/s (medians of ${own.length})`,
  )
}
server.close()
