// Below the text: tokens in, logits out, and exact rewind. `node examples/engine.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())
const context = model.createContext()

const prompt = model.tokenizer.encode('Once upon a time there was a')
const logits = await context.evalPrompt(prompt)
const next = logits.indexOf(Math.max(...logits))
console.log(`after '${model.tokenizer.decode(prompt)}' comes '${model.tokenizer.decode([next])}'`)

await context.checkpoint()
await context.evalToken(next)
await context.rewind(prompt.length)
console.log(`back at ${context.length} of ${prompt.length} tokens`)

const { expertHits, expertMisses, bytesRead } = model.stats()
console.log({ expertHits, expertMisses, bytesRead })
await model.close()
