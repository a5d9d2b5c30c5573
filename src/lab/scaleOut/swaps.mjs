// Three models that differ and room for two: sixteen clients ask for any of them, so that they are loaded and unloaded all the
// time. Every answer must be the one that its model gives alone, no more than two may be in memory, and memory, open handles and
// threads must not grow with the number of swaps. Fails where one of these is not so.
//
//   node --expose-gc src/lab/scaleOut/swaps.mjs [--swaps 200] [--clients 16]
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { serve } from '#moeflux/apps/server/serve.js'
import { demoModelPath, openModel } from '#moeflux/index.js'

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? fallback : Number(process.argv[at + 1])
}
const swaps = option('swaps', 200)
const clients = option('clients', 16)
const ROOM = 2
const MOST_GROWTH = 1.1 // of what is in use after the first tenth of the swaps
const home = mkdtempSync(join(tmpdir(), 'moeflux-swaps-'))
const failures = []

await promisify(execFile)(process.execPath, [fileURLToPath(new URL('tinyModels.mjs', import.meta.url)), home])
const models = new Map([
  ['first', demoModelPath()],
  ['second', join(home, 'second')],
  ['third', join(home, 'third')],
])
const names = [...models.keys()]
const prompt = { messages: [{ role: 'user', content: 'Tell me a story' }], temperature: 0 }
let inMemory = 0
let mostInMemory = 0
const open = async place => {
  const model = await openModel(place, { backend: 'wasm', threads: 1, expertMemory: '20MB' })
  mostInMemory = Math.max(mostInMemory, ++inMemory)
  const close = model.close.bind(model)
  model.close = async () => {
    await close()
    inMemory--
  }
  return model
}

const alone = new Map()
for (const [name, place] of models) {
  const model = await open(place)
  alone.set(
    name,
    (
      await model
        .createSession()
        .chat({ ...prompt, maxTokens: 3 })
        .answer()
    ).text,
  )
  await model.close()
}
if (new Set(alone.values()).size < names.length) failures.push('two of the models say the same alone')
mostInMemory = 0

const server = await serve(
  names.map(id => ({ id, open: () => open(models.get(id)) })),
  { port: 0, maxLoaded: ROOM },
)

let seed = 1
const random = () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed / 2 ** 32
}
const headers = { 'content-type': 'application/json' }
const unloads = async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text()
  return Number(/^moeflux_model_unloads_total (\d+)/m.exec(text)?.[1])
}

const looks = []
const look = swap => {
  globalThis.gc?.()
  const { rss, external, arrayBuffers } = process.memoryUsage()
  const MB = bytes => Math.round(bytes / 1e6)
  const now = {
    swap,
    rssMB: MB(rss),
    externalMB: MB(external),
    buffersMB: MB(arrayBuffers),
    handles: process.getActiveResourcesInfo().filter(kind => !/TCP|Timeout|HTTP/i.test(kind)).length,
    threads: process.platform === 'linux' ? readdirSync('/proc/self/task').length : 0,
    files: process.platform === 'linux' ? readdirSync('/proc/self/fd').length : 0,
  }
  looks.push(now)
  console.log(JSON.stringify(now))
}

const asked = Object.fromEntries(names.map(name => [name, 0]))
const step = Math.max(1, Math.floor(swaps / 10))
let swapped = 0
let wrong = 0
async function client() {
  while (swapped < swaps) {
    const model = names[Math.floor(random() * names.length)]
    const body = JSON.stringify({ ...prompt, model, max_tokens: 3 })
    const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers, body })
    const answer = await response.json()
    asked[model]++
    if (answer.choices?.[0]?.message.content !== alone.get(model)) {
      wrong++
      if (wrong <= 3) failures.push(`${model}, status ${response.status}: ${JSON.stringify(answer).slice(0, 300)}`)
    }
  }
}
const running = Promise.all(Array.from({ length: clients }, client))
for (let next = step; swapped < swaps; ) {
  swapped = await unloads()
  if (swapped >= next) {
    look(swapped)
    next += step
  } else await new Promise(resolve => setTimeout(resolve, 100))
}
await running

const [first, last] = [looks[0], looks.at(-1)]
for (const what of ['rssMB', 'externalMB', 'buffersMB', 'handles', 'threads', 'files']) {
  // Where nothing leaks one look differs from another by what is being loaded just then: the least of each half tells.
  const half = looks.length >> 1
  const least = part => Math.min(...part.map(each => each[what]))
  const [before, after] = [least(looks.slice(0, half)), least(looks.slice(half))]
  if (after > before * MOST_GROWTH + 2) failures.push(`${what} grew from ${before} to ${after}`)
}
if (mostInMemory > ROOM) failures.push(`${mostInMemory} models were in memory at once`)
if (wrong > 0) failures.push(`${wrong} wrong answers`)
await server.stop()
if (inMemory > 0) failures.push(`${inMemory} models were not closed`)
console.log(JSON.stringify({ swaps: swapped, asked, wrong, mostInMemory, rssMB: [first.rssMB, last.rssMB] }))
rmSync(home, { recursive: true, force: true })
for (const line of failures) console.error(`FAILED ${line}`)
process.exit(failures.length === 0 ? 0 : 1)
