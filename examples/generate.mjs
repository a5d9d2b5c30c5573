// One answer, whole, then one streamed. `node examples/generate.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())

const answer = await model.generate({ prompt: 'Tell me a story about a girl named Mia', seed: 1 })
console.log(answer.text)
console.log(`(${answer.usage.answerTokens} tokens, ${answer.reason})\n`)

for await (const event of model.stream({ prompt: 'Tell me a story about a princess', seed: 1 })) {
  if (event.type === 'text') process.stdout.write(event.text)
}
console.log()
await model.close()
