// Answers of a guaranteed form: JSON of a schema, and a tool call. `node examples/structured.mjs [model folder]`
import { demoModelPath, openModel } from 'moeflux'

const model = await openModel(process.argv[2] ?? demoModelPath())

const story = {
  type: 'object',
  properties: { girl: { enum: ['Lily', 'Mia', 'Sue'] }, toy: { enum: ['ball', 'doll', 'kite'] } },
  required: ['girl', 'toy'],
  additionalProperties: false,
}
const answer = await model.generate({
  prompt: 'Tell me a story about a girl named Mia',
  responseFormat: { type: 'json_schema', schema: story },
  maxTokens: 60,
  temperature: 0,
})
console.log(JSON.parse(answer.text))

const city = {
  type: 'object',
  properties: { city: { enum: ['London', 'Paris', 'Rome'] } },
  required: ['city'],
  additionalProperties: false,
}
const { toolCalls } = await model.generate({
  prompt: 'What is the weather in Paris?',
  tools: [{ name: 'get_weather', description: 'Get the weather in a city', parameters: city, strict: true }],
  toolChoice: 'required',
  parallelToolCalls: false,
  maxTokens: 80,
  temperature: 0,
})
console.log(toolCalls[0].name, JSON.parse(toolCalls[0].arguments))
await model.close()
