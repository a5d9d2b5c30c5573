// Greedy text of the built-in model on every backend that should give the same: reference, wasm exact, webgpu exact. Where
// one differs, shows how near the reference was to choosing otherwise: the gap between its two best logits at that token,
// and the smallest gap between the last expert chosen and the first one not, over all layers and tokens before.
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values: args } = parseArgs({
  options: {
    dist: { type: 'string', default: fileURLToPath(new URL('../../../dist', import.meta.url)) },
    tokens: { type: 'string', default: '200' },
    backends: { type: 'string', default: 'wasm,webgpu' },
  },
})
const NEAR = 1e-4
const PROMPTS = [
  'Once upon a time there was a little',
  'The old clock in the tower',
  'Tom and his dog found a strange box. ',
]
const { openModel } = await import(`${args.dist}/index.js`)
const folder = `${args.dist}/demo-model`
const count = Number(args.tokens)
const options = { precision: 'exact', onNotice: line => console.log(line) }

const reference = await openModel(folder, { backend: 'reference' })
const prompts = PROMPTS.map(text => reference.tokenizer.encode(text))
const wanted = []
for (const prompt of prompts) wanted.push(await greedy(reference, prompt))
let failures = 0
for (const backend of args.backends.split(',')) {
  const model = await openModel(folder, { ...options, backend })
  console.log(model.backendDescription)
  for (const [i, prompt] of prompts.entries()) {
    const { tokens } = await greedy(model, prompt)
    const at = tokens.findIndex((token, n) => token !== wanted[i].tokens[n])
    if (at < 0) {
      console.log(`  prompt ${i}: ${tokens.length} tokens, all the same`)
      continue
    }
    const logits = wanted[i].gaps[at]
    const router = await routerGap([...prompt, ...wanted[i].tokens.slice(0, at)])
    const isNear = logits < NEAR || router < NEAR
    if (!isNear) failures++
    console.log(
      `  prompt ${i}: differs at token ${at}; there the best logits are ${logits.toExponential(2)} apart, and routers ` +
        `came within ${router.toExponential(2)}: ${isNear ? 'a near tie' : 'NOT a near tie'}`,
    )
  }
  await model.close()
}
await reference.close()
process.exitCode = failures > 0 ? 1 : 0

async function greedy(model, prompt) {
  const context = model.createContext()
  const tokens = []
  const gaps = []
  let logits = await context.evalPrompt(prompt)
  while (tokens.length < count) {
    const [best, second] = topTwo(logits)
    tokens.push(best)
    gaps.push(logits[best] - logits[second])
    if (tokens.length < count) logits = await context.evalToken(best)
  }
  await context.close()
  return { tokens, gaps }
}

async function routerGap(tokens) {
  const context = reference.createContext()
  const { layers } = await context.probe({ tokens })
  await context.close()
  const k = reference.config.expertsPerToken
  let least = Number.POSITIVE_INFINITY
  for (const { routerLogits } of layers) {
    const experts = routerLogits.length / tokens.length
    for (let t = 0; t < tokens.length; t++) {
      const row = routerLogits
        .slice(t * experts, (t + 1) * experts)
        .sort()
        .reverse()
      least = Math.min(least, row[k - 1] - row[k])
    }
  }
  return least
}

function topTwo(logits) {
  let best = 0
  let second = -1
  for (let i = 1; i < logits.length; i++) {
    if (logits[i] > logits[best]) {
      second = best
      best = i
    } else if (second < 0 || logits[i] > logits[second]) second = i
  }
  return [best, second]
}
