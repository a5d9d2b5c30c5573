// Below the text: tokens in, logits out, and exact rewind. `node examples/engine.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())
const context = model.createContext()

const { tokenizer } = model
if (tokenizer === null) throw new Error('this model has no tokenizer')
const prompt = tokenizer.encode('Once upon a time there was a')
const logits = await context.evalPrompt(prompt)
if (logits === null) throw new Error('the prompt has no tokens')
const next = logits.indexOf(Math.max(...logits))
console.log(`after '${tokenizer.decode(prompt)}' comes '${tokenizer.decode([next])}'`)

await context.checkpoint()
await context.evalToken(next)
await context.rewind(prompt.length)
console.log(`back at ${context.length} of ${prompt.length} tokens`)

const { expertHits, expertMisses, bytesRead } = model.stats()
console.log({ expertHits, expertMisses, bytesRead })
await model.close()
