// Two models and room for one: each request is for the other, so that every one swaps them. Tells memory and open handles before
// and after, which must not grow with the number of swaps.
//
//   node scripts/scaleOut/swaps.mjs [--swaps 200]
import { demoModelPath, openModel } from '#moeflux/index.js'
import { serve } from '#moeflux/server/serve.js'

const at = process.argv.indexOf('--swaps')
const swaps = at < 0 ? 200 : Number(process.argv[at + 1])
const open = () => openModel(demoModelPath(), { backend: 'wasm', threads: 1, expertMemory: '20MB' })
const server = await serve(
  ['one', 'two'].map(id => ({ id, open })),
  { port: 0, maxLoaded: 1 },
)
const ask = async model => {
  const body = { model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2, temperature: 0 }
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  })
  return (await response.json()).choices[0].message.content
}
const look = swap => {
  globalThis.gc?.()
  const { rss, external, arrayBuffers } = process.memoryUsage()
  const MB = bytes => Math.round(bytes / 1e6)
  const handles = process.getActiveResourcesInfo().length
  console.log(JSON.stringify({ swap, rssMB: MB(rss), externalMB: MB(external), buffersMB: MB(arrayBuffers), handles }))
}
const answers = new Set()
for (let swap = 0; swap <= swaps; swap++) {
  answers.add(await ask(swap % 2 === 0 ? 'one' : 'two'))
  if (swap % Math.max(1, Math.floor(swaps / 4)) === 0) look(swap)
}
console.log(JSON.stringify({ differentAnswers: answers.size }))
await server.stop()
