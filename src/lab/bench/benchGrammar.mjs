#!/usr/bin/env node
// What a JSON schema costs per token: answers of the same length with one and without take turns on the same opened model,
// so that both meet the same machine.
//
//   node src/lab/bench/benchGrammar.mjs [FOLDER] [--tokens 128] [--turns 12] [--threads N]
//
// FOLDER: a packed model, by default the built-in one.
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'
import { demoModelPath, openModel } from '../../../dist/index.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tokens: { type: 'string', default: '128' },
    turns: { type: 'string', default: '12' },
    threads: { type: 'string' },
  },
})
const maxTokens = Number(options.tokens)
const text = { type: 'string', minLength: 12 }
const person = {
  type: 'object',
  properties: { name: text, age: { type: 'integer', minimum: 0, maximum: 120 }, tags: { type: 'array', items: text } },
  required: ['name', 'age', 'tags'],
}
// Never done before the tokens are: what is measured is the same number of tokens.
const schema = { type: 'array', items: person, minItems: maxTokens }
const sides = [
  { name: 'schema', format: { type: 'json_schema', schema }, turns: [] },
  { name: 'free', format: undefined, turns: [] },
]
const model = await openModel(positionals[0] ?? demoModelPath(), {
  backend: 'wasm',
  threads: options.threads && Number(options.threads),
})
// Free text may not end early either.
const logitBias = new Map(model.eosTokenIds.map(token => [token, -100]))
const answer = async ({ format: responseFormat }) => {
  const { usage } = await model.generate({
    prompt: 'Tell me about some people.',
    maxTokens,
    temperature: 0,
    logitBias,
    responseFormat,
  })
  return { tokens: usage.answerTokens, ms: (usage.answerSeconds * 1000) / usage.answerTokens }
}
for (const side of sides) await answer(side)
for (let turn = 0; turn < Number(options.turns); turn++) {
  for (const side of turn % 2 === 0 ? sides : [...sides].reverse()) side.turns.push(await answer(side))
}
for (const { name, turns } of sides) {
  const times = turns.map(({ ms }) => ms)
  console.log(
    `${name.padEnd(6)}  ${upperMedian(times).toFixed(3)} ms per token, ${upperMedian(turns.map(each => each.tokens))} tokens`,
  )
}
const ratios = sides[0].turns.map(({ ms }, i) => ms / sides[1].turns[i].ms)
const differences = sides[0].turns.map(({ ms }, i) => ms - sides[1].turns[i].ms)
console.log(
  `schema ÷ free, median of turns: ${upperMedian(ratios).toFixed(3)}; ${upperMedian(differences).toFixed(3)} ms more per token`,
)
await model.close()
