// The server inside a program, and a request to it. `node examples/server.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'
import { serve } from 'moeflux/server'

const model = await openModel(process.argv[2] ?? demoModelPath())
const server = await serve(model, { port: 0 })

const response = await fetch(`${server.url}/v1/chat/completions`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ messages: [{ role: 'user', content: 'Tell me a story about a princess' }], seed: 1 }),
})
console.log((await response.json()).choices[0].message.content)

await server.stop()
await model.close()
