// Opens a model in a process of its own, evaluates a prompt and some tokens, and prints what the plan was and what memory
// was really taken at most: node peakMemory.mjs '{"backend":"wasm","folder":…,"expertMemory":…}'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'

const { backend: name, folder, way, prompt, decodes, ...given } = JSON.parse(process.argv[2])
const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
const { expertsPerToken, vocabSize } = packed.config
const options = { precision: 'fast', expertsPerToken, threads: 2, ...given }
const open =
  name === 'wasm'
    ? (await import('#moeflux/backends/wasm/wasmBackend.js')).openWasmBackend
    : (await import('#moeflux/backends/webgpu/open/openWebgpuBackend.js')).openWebgpuBackend
globalThis.gc?.()
const before = process.memoryUsage.rss()
const backend = await open(packed, options, way && { way: threads => ({ ...way, threads }) })
const sequence = backend.createSequence()
const tokens = Array.from({ length: prompt }, (_, i) => (i * 37) % vocabSize)
for (let at = 0; at < tokens.length; at += backend.chunkTokens) {
  const chunk = tokens.slice(at, at + backend.chunkTokens)
  await backend.step([{ sequence, tokens: chunk, phase: 'prompt', output: 'last' }])
}
for (let i = 0; i < decodes; i++) {
  await backend.step([{ sequence, tokens: [(i * 91) % vocabSize], phase: 'decode', output: 'last' }])
}
const peak = process.resourceUsage().maxRSS * 1024
const planned =
  name === 'wasm'
    ? backend.runtime.plannedBytes
    : // A software GPU has no memory of its own.
      backend.plan.memoryBytes + backend.plan.fixedBytes + backend.plan.gpuSlots * packed.experts.layout.expertSize
const { expertSlots } = backend.stats()
await backend.close()
console.log(JSON.stringify({ before, planned, peak, expertSlots }))
