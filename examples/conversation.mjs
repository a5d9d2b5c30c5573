// A conversation: each turn evaluates only what is new. `node examples/conversation.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())
const session = model.createSession()
const messages = [{ role: 'system', content: 'You tell stories.' }]

for (const question of ['Who are you?', 'Tell me a story about a girl named Mia.', 'Thank you!']) {
  messages.push({ role: 'user', content: question })
  const { text, usage } = await session.chat({ messages, maxTokens: 300, seed: 2 }).answer()
  messages.push({ role: 'assistant', content: text })
  console.log(`> ${question}\n${text}\n(${usage.cachedTokens} tokens cached, ${usage.newTokens} new)\n`)
}
await model.close()
