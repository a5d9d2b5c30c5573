// What checkpoints cost on the wasm backend: `node src/lab/bench/benchCheckpoints.mjs FOLDER [--tokens 4100] [--threads 2]`.
// FOLDER: a packed model, such as `moeflux bench --synthetic a3b:8` leaves in the store. Needs a build.
//
// Takes four checkpoints, a few tokens apart, and prints how long each took, the bytes that it and the next token copied,
// and the memory that the context holds. A checkpoint copies logits only; the page that tokens go on in is copied by the
// next one, which also gets another set of recurrent state to write to, as every token does.
import { parseArgs } from 'node:util'
import { PAGE_TOKENS } from '../../../dist/backends/kvPages.js'
import { SequenceStore } from '../../../dist/backends/wasm/memory/sequenceStore.js'
import { openModel } from '../../../dist/index.js'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tokens: { type: 'string', default: '4100' }, threads: { type: 'string', default: '2' } },
})
const count = Number(values.tokens)

// Listens in on the store: what is copied, and how large its pieces are.
let copied = 0
let store = null
const { copy, takeSet } = SequenceStore.prototype
SequenceStore.prototype.copy = function (from, to, rows) {
  copied += rows * this.fullLayers.length * 2 * this.kvDim * 4
  return copy.call(this, from, to, rows)
}
SequenceStore.prototype.takeSet = function () {
  store = this
  return takeSet.call(this)
}

const model = await openModel(positionals[0], { backend: 'wasm', threads: Number(values.threads) })
let seed = 1
const token = () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed % model.vocabSize
}
const ms = async work => {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}
const mb = bytes => `${(bytes / 1e6).toFixed(3)} MB`

const context = model.createContext()
const into = new Float32Array(model.vocabSize)
const next = () => context.evalToken(token(), { into })
const prompt = await ms(() => context.evalPrompt(Array.from({ length: count }, token)))
console.log(`prompt of ${count} tokens: ${(prompt / 1000).toFixed(1)} s`)
console.log(`recurrent state ${mb(store.setBytes)}, a page of ${PAGE_TOKENS} tokens ${mb(store.pageBytes)}`)
const plain = []
for (let i = 0; i < 5; i++) plain.push(await ms(next))
plain.sort((a, b) => a - b)
console.log(`a token without a checkpoint before it: ${plain[2].toFixed(1)} ms`)
console.log(`memory of the context: ${mb(context.memoryBytes)}`)
for (let i = 0; i < 4; i++) {
  copied = 0
  const took = await ms(() => context.checkpoint())
  const atOnce = copied
  const after = await ms(next)
  const line = [
    `checkpoint at ${context.length - 1}: ${took.toFixed(2)} ms, ${mb(atOnce + model.vocabSize * 4)} copied`,
    `the next token ${after.toFixed(1)} ms, ${mb(copied - atOnce)} copied`,
    `memory ${mb(context.memoryBytes)}`,
  ]
  console.log(line.join('; '))
  await next()
}
for (const position of [...context.checkpoints].reverse()) {
  const took = await ms(() => context.restore(position))
  console.log(`restore to ${position}: ${took.toFixed(2)} ms`)
}
await model.close()
