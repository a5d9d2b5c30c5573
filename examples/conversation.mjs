// A conversation: each turn evaluates only what is new. `node examples/conversation.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())
const session = model.createSession()
const messages = [{ role: 'system', content: 'You tell stories.' }]

for (const question of ['Tell me about a dog.', 'And then?', 'How does it end?']) {
  messages.push({ role: 'user', content: question })
  const { text, usage } = await session.chat({ messages, maxTokens: 24, temperature: 0 }).answer()
  messages.push({ role: 'assistant', content: text })
  console.log(`> ${question}\n${text}\n(${usage.cachedTokens} tokens cached, ${usage.newTokens} new)\n`)
}
await model.close()
