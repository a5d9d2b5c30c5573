// States of sequences at rest: snapshots and the envelopes around them. What is refused must leave the context as it was,
// and what is taken must be something that the model can go on from.
import { sha256 } from '#moeflux/base/sha256.js'
import { checkSnapshot, decodeLayers } from '#moeflux/engine/snapshot.js'
import { decodeEnvelope, encodeEnvelope } from '#moeflux/engine/snapshotEnvelope.js'
import { openModel } from '#moeflux/index.js'
import { brokenBytes } from '../mutateBytes.mjs'
import { Wrong } from './wrong.mjs'

const TOKENS = [3, 1, 4, 1, 5]
const CHECKSUM_BYTES = 32

/** `folder`: a packed model. */
export async function stateReaders(folder) {
  const model = await openModel(folder, { backend: 'reference' })
  const { snapshot, envelopes } = await validStates(model)
  return {
    snapshot: {
      valid: snapshot,
      make: random => brokenBytes(snapshot, random, [0, 4, 8, 12, 16, 20, 24, 28, 32]),
      async read(bytes) {
        const length = checkSnapshot(bytes, model.config, model.contextLength)
        for (const _ of decodeLayers(bytes, model.config));
        await loadAndGoOn(model, bytes, Array(length).fill(1))
      },
      names: ['snapshot', 'not finite'],
    },
    envelope: {
      valid: envelopes[0],
      /** Mostly with a right checksum, so that what lies behind it is reached. */
      async make(random) {
        const broken = brokenBytes(random.pick(envelopes), random, [0, 4, 8, 12, 16, 20, 24, 28])
        if (broken.length <= CHECKSUM_BYTES || random.chance(0.2)) return broken
        const end = broken.length - CHECKSUM_BYTES
        broken.set(await sha256(broken.subarray(0, end)), end)
        return broken
      },
      async read(bytes) {
        const { snapshot: found, tokens, logits } = await decodeEnvelope(bytes, model)
        await loadAndGoOn(model, found, Array.from(tokens), logits ?? undefined)
      },
      names: ['snapshot', 'token', 'not finite'],
      close: () => model.close(),
    },
  }
}

async function validStates(model) {
  const context = model.createContext()
  const logits = await context.evalPrompt(TOKENS)
  const snapshot = await context.saveState()
  await context.close()
  const content = { fingerprint: model.fingerprint, tokens: TOKENS, logits, snapshot }
  const bodies = ['exact', 'f16', 'bf16']
  const envelopes = await Promise.all(bodies.map(body => encodeEnvelope(content, model.config, body)))
  return { snapshot, envelopes }
}

async function loadAndGoOn(model, snapshot, tokens, logits) {
  const context = model.createContext()
  try {
    await context.evalPrompt([7, 7])
    try {
      await context.loadState(snapshot, tokens, logits)
    } catch (error) {
      if (context.length !== 2) throw new Wrong(`refused (${error.message}), but the length is ${context.length}`)
      throw error
    }
    if (context.length !== tokens.length)
      throw new Wrong(`${tokens.length} tokens, but the length is ${context.length}`)
    const next = await context.evalPrompt([2])
    if (!next.every(Number.isFinite)) throw new Wrong('logits that are not finite')
  } finally {
    await context.close()
  }
}
