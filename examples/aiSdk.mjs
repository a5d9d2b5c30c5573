// With the AI SDK (`npm install ai`). `node examples/aiSdk.mjs [model folder or name]`
import { streamText } from 'ai'
import { moeflux } from 'moeflux/ai'

const { textStream } = streamText({
  model: moeflux(process.argv[2] ?? 'demo'),
  prompt: 'Tell me a story about a girl named Mia',
})
for await (const piece of textStream) process.stdout.write(piece)
console.log()
await moeflux.close()
