#!/usr/bin/env node
// Text with guesses is text without: greedy answers of the built-in model to twenty prompts, with 0 to 3 guesses, on each backend, token by
// token. Then how often guesses come true, greedily and at temperature 1, beside what the head's training measured.
//
//   node src/lab/bench/draftIdentity.mjs [--backends reference,wasm,webgpu] [--prompts 20] [--tokens 200] [--drafts 0,1,2,3] [--samples 40]
//
// Backends compute in float32 (`exact`). Ends with 1 where a text differs. The reference takes a quarter of an hour.
import { parseArgs } from 'node:util'
import { openModel } from '../../../dist/index.js'

const { values: options } = parseArgs({
  options: {
    folder: { type: 'string', default: new URL('../../../dist/demo-model', import.meta.url).pathname },
    backends: { type: 'string', default: 'reference,wasm' },
    prompts: { type: 'string', default: '20' },
    tokens: { type: 'string', default: '200' },
    drafts: { type: 'string', default: '0,1,2,3' },
    samples: { type: 'string', default: '0' },
  },
})
const PROMPTS = [
  'Once upon a time there was a little',
  'The old clock in the tower',
  'Tom and his dog found a strange box. ',
  'Lily wanted to bake a cake, but',
  'It was raining and the children',
  'A small bird sat on the fence and',
  'One day, a boy named Ben',
  'The cat was hungry. She',
  'Mom said, "Do not touch the',
  'There was a big tree in the park.',
  'Sam had a red ball. He',
  'The sun was hot and the',
  'Anna and her brother went to the beach',
  'In a far land lived a king who',
  'The teacher asked the class to',
  'A frog jumped into the pond and',
  'Max lost his favourite toy',
  'The moon was bright when',
  'Grandma told a story about',
  'They saw a rainbow over the',
]
const count = Number(options.tokens)
const numbers = options.drafts.split(',').map(Number)
let differences = 0

for (const backend of options.backends.split(',')) {
  const texts = new Map()
  for (const drafts of numbers) {
    const model = await openModel(options.folder, { backend, drafts, precision: 'exact' })
    const prompts = PROMPTS.slice(0, Number(options.prompts)).map(text => [...model.tokenizer.encode(text)])
    const sums = { guesses: 0, right: 0, different: 0 }
    for (const [i, prompt] of prompts.entries()) {
      const text = await greedy(model, prompt, drafts, sums)
      const want = texts.get(i)
      if (want === undefined) texts.set(i, text)
      else if (want.join() !== text.join()) {
        sums.different++
        const at = text.findIndex((token, n) => token !== want[n])
        console.log(`  prompt ${i}: differs from drafts ${numbers[0]} at token ${at}`)
      }
    }
    differences += sums.different
    const share =
      sums.guesses === 0
        ? ''
        : `, ${sums.right} of ${sums.guesses} guesses right (${(sums.right / sums.guesses).toFixed(3)})`
    const same = drafts === numbers[0] ? '' : `, ${prompts.length - sums.different} of ${prompts.length} the same`
    console.log(`${backend} exact, drafts ${drafts}: ${prompts.length} texts of ${count} tokens${same}${share}`)
    await model.close()
  }
}
if (Number(options.samples) > 0) await sample()
process.exitCode = differences > 0 ? 1 : 0

async function greedy(model, prompt, drafts, sums) {
  const context = model.createContext({ maxCheckpoints: 0 })
  let { argmax: token } = await context.evaluate(prompt)
  const text = [token]
  while (text.length < count) {
    const wanted = Math.min(drafts, count - text.length - 1)
    const guesses = wanted > 0 ? await context.draft(token, wanted) : []
    let best = []
    const keep = ({ argmax }) => {
      let right = 0
      while (right < guesses.length && guesses[right] === argmax[right]) right++
      best = [...argmax.subarray(0, right + 1)]
      return right + 1
    }
    if (drafts === 0) best = [await context.evalTokenGreedy(token)]
    else await context.evalGuesses([token, ...guesses], { output: 'argmax', keep })
    text.push(...best)
    token = best.at(-1)
    sums.guesses += guesses.length
    sums.right += best.length - 1
  }
  await context.close()
  return text
}

/** Speculative sampling at temperature 1 accepts what both distributions have in common: 0.80 to 0.81 by the head's training. */
async function sample() {
  for (const drafts of [1, 3]) {
    const model = await openModel(options.folder, { backend: 'wasm', drafts })
    const sums = { accepted: 0, rejected: 0 }
    for (let i = 0; i < Number(options.samples); i++) {
      const prompt = PROMPTS[i % PROMPTS.length]
      for await (const event of model.stream({ prompt, temperature: 1, topP: 1, topK: 0, maxTokens: 100 })) {
        if (event.type !== 'usage' || !event.drafts) continue
        sums.accepted += event.drafts.accepted
        sums.rejected += event.drafts.rejected
      }
    }
    const all = sums.accepted + sums.rejected
    console.log(
      `temperature 1, drafts ${drafts}: ${sums.accepted} of ${all} right (${(sums.accepted / all).toFixed(3)})`,
    )
    await model.close()
  }
}
