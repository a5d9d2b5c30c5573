// What stored states cost, with the shapes of a real model and no weights: rows are made up as they are read, and compared as
// they come back. Writes and restores 1k, 8k and 32k tokens of 35B-A3B on a folder, Redis and S3; with --long, a conversation
// of 200 turns whose state passes 4 GiB, on a folder.
//
//   node src/lab/scaleOut/stateCosts.mjs [--long] [--tokens 1024,8192,32768]
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { presets } from '#moeflux/model/presets.js'
import { convStateSize, kvRowSize, recurrentStateSize } from '#moeflux/model/sizes.js'
import { FolderStore } from '#moeflux/stores/folderStore.js'
import { openStore } from '#moeflux/stores/nodeOpenStore.js'
import { PagedStates } from '#moeflux/stores/pagedStates.js'
import { STORED_PAGE_TOKENS } from '#moeflux/stores/stateNames.js'
import { startRedis, startS3 } from './servers.mjs'

// The long conversation has a small recurrent part, as each turn writes one: 200 of them are not what is to be shown.
const isLong = process.argv.includes('--long')
const { config: a3b } = presets.a3b
const config = isLong ? { ...a3b, linearValueHeads: 1, linearConvDim: 256 } : a3b
const tokensOf = length => Array.from({ length }, (_, i) => (i * 7919) % config.vocabSize)

/** A value that says which row of which layer it is, at both ends of the row; the rest is filled once. */
const mark = (layer, part, row) => row * 64 + layer + (part === 'keys' ? 0 : 0.25)
const size = kvRowSize(config)
const page = new Float32Array(STORED_PAGE_TOKENS * size).fill(0.5)

function rowsOf(layer, part, start, rows) {
  const out = page.slice(0, rows * size)
  for (let row = 0; row < rows; row++) {
    out[row * size] = mark(layer, part, start + row)
    out[(row + 1) * size - 1] = out[row * size]
  }
  return out
}

const recurrent = layer => ({
  kind: 'linear_attention',
  conv: new Float32Array(convStateSize(config)).fill(layer),
  recurrent: new Float32Array(recurrentStateSize(config)).fill(layer + 0.5),
})

/** Takes what comes into memory as a backend does, and looks at the ends of each row. */
class MadeUpContext {
  async adopt(kept) {
    this.length = kept.tokens.length
  }
  async readState(work) {
    return await work({
      length: this.length,
      exportLayer: async layer => recurrent(layer),
      exportRows: async (layer, part, start, rows) => rowsOf(layer, part, start, rows),
    })
  }
  async importState(_, fill) {
    const kept = new Float32Array(Math.max(page.length, recurrentStateSize(config)))
    await fill({
      rows(layer, part, start, rows) {
        kept.set(rows)
        for (let row = 0; row < rows.length / size; row++) {
          const want = mark(layer, part, start + row)
          if (kept[row * size] !== want || kept[(row + 1) * size - 1] !== want) {
            throw new Error(`wrong rows of layer ${layer} at ${start}`)
          }
        }
      },
      linear(layer, state) {
        kept.set(state.recurrent)
        if (kept[0] !== layer + 0.5 || kept[state.recurrent.length - 1] !== layer + 0.5) {
          throw new Error(`wrong state of layer ${layer}`)
        }
      },
    })
  }
  async close() {}
}

const model = { config, fingerprint: 'made up', expertsPerToken: 8, createContext: () => new MadeUpContext() }
const limited = work => work(new AbortController().signal)
const MB = bytes => Math.round(bytes / 1e6)

/** The bytes of a state and nothing done with them: what the store and its client take, one page after the other. */
async function readOnly(store, states, tokens) {
  const names = states.names(tokens, '')
  const began = performance.now()
  await store.get([await names.state(tokens.length)])
  for (let page = 1; page <= tokens.length / STORED_PAGE_TOKENS; page++) await store.get([await names.page(page)])
  return performance.now() - began
}

async function measure(name, store, lengths) {
  for (const length of lengths) {
    const states = new PagedStates(store, model, `c${length}`, 'f32')
    const tokens = tokensOf(length)
    let began = performance.now()
    const { bytes } = await states.save({ tokens }, '', limited)
    const saveMs = performance.now() - began
    began = performance.now()
    const read = await states.restore(new MadeUpContext(), states.names(tokens, ''), tokens, limited)
    const restoreMs = performance.now() - began
    const readMs = await readOnly(store, states, tokens)
    console.log(
      JSON.stringify({
        store: name,
        tokens: length,
        MB: MB(bytes),
        saveMs: Math.round(saveMs),
        restoreMs: Math.round(restoreMs),
        readMs: Math.round(readMs),
        exact: read === bytes,
      }),
    )
  }
}

async function longConversation() {
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-long-'))
  try {
    const store = new FolderStore(folder, { budget: 64e9 })
    const states = new PagedStates(store, model, 'long', 'f32')
    const turns = 200
    const perTurn = 560 // tokens: 200 turns are 112,000
    let newPages = 0
    let most = 0
    for (let turn = 1; turn <= turns; turn++) {
      const { objects, bytes } = await states.save({ tokens: tokensOf(turn * perTurn) }, '', limited)
      // The state before is of no use any more: a store would let it go.
      if (turn > 1)
        await store.remove(await states.names(tokensOf((turn - 1) * perTurn), '').state((turn - 1) * perTurn))
      newPages += objects - 1
      most = Math.max(most, bytes)
    }
    const tokens = tokensOf(turns * perTurn)
    const began = performance.now()
    const bytes = await states.restore(new MadeUpContext(), states.names(tokens, ''), tokens, limited)
    const seconds = (performance.now() - began) / 1000
    console.log(
      JSON.stringify({
        turns,
        tokens: tokens.length,
        stateGB: bytes / 1e9,
        pages: newPages,
        mostMBWrittenInATurn: MB(most),
        restoreSeconds: Math.round(seconds),
        exact: bytes === states.bytesOf(tokens.length) + objectOverhead(newPages + 1),
      }),
    )
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Header, name and checksum of each object. */
const objectOverhead = objects =>
  (objects - 1) * (32 + Math.ceil('long/kv-'.length + 64) + 32) +
  (32 + Math.ceil(('long/state-'.length + 64) / 4) * 4 + 32)

if (isLong) await longConversation()
else {
  const at = process.argv.indexOf('--tokens')
  const lengths = at < 0 ? [1024, 8192, 32_768] : process.argv[at + 1].split(',').map(Number)
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-costs-'))
  await measure('folder', new FolderStore(folder, { budget: 64e9 }), lengths)
  rmSync(folder, { recursive: true, force: true })
  const redis = await startRedis()
  const store = await openStore(redis.url)
  await measure('redis', store, lengths)
  await store.close()
  await redis.stop()
  const s3 = await startS3()
  Object.assign(process.env, s3.env)
  await measure('s3rver', await openStore(s3.url), lengths)
  await s3.stop()
}
