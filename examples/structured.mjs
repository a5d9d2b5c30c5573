// Answers of a guaranteed form: JSON of a schema, and a tool call. `node examples/structured.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())

const schema = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 0, maximum: 20 } },
  required: ['name', 'age'],
  additionalProperties: false,
}
const dog = await model.generate({
  prompt: 'Describe a dog',
  responseFormat: { type: 'json_schema', schema },
  maxTokens: 60,
})
console.log(JSON.parse(dog.text))

const feed = { name: 'feed', description: 'Feeds a dog', parameters: schema, strict: true }
const { toolCalls } = await model.generate({
  prompt: 'Feed the dog',
  tools: [feed],
  toolChoice: 'required',
  parallelToolCalls: false,
  maxTokens: 80,
})
console.log(toolCalls[0].name, JSON.parse(toolCalls[0].arguments))
await model.close()
