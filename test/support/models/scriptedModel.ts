// A model whose "mind" is a function of all tokens so far: what the session room does with states, prompts and answers can
// then be tested in milliseconds, and a state that was restored wrongly gives a wrong answer at once. Its recurrent state is
// a hash of the tokens and its K/V rows are the tokens, so snapshots work too.
import {
  type Backend,
  type DraftRequest,
  type HeldState,
  importWhole,
  type KvPart,
  type LayerState,
  type SequenceState,
  type StateImport,
  type StepRun,
} from '#moeflux/backends/backend.js'
import { Model } from '#moeflux/chat/openModel.js'
import { prefixKey } from '#moeflux/chat/prefixMatch.js'
import type { Drafts } from '#moeflux/engine/draftGovernor.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { ModelConfig } from '#moeflux/model/config.js'
import { loadChatTemplate } from '#moeflux/text/template/chatTemplate.js'
import type { Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { startNodeTextWorker } from '#moeflux/text/workers/nodeStartTextWorker.js'
import { TextWorkers } from '#moeflux/text/workers/textWorkers.js'
import { demoFiles, demoTokenizer, textFolder } from '../textTools.js'

export const END_TOKEN = 8185

/** The next token after `tokens`. */
export type Script = (tokens: readonly number[]) => number

export interface ScriptedOptions {
  readonly script: Script
  readonly contextLength?: number
  readonly fingerprint?: string
  /** Called before each step; may throw or wait. */
  readonly onStep?: (runs: readonly StepRun[], signal?: AbortSignal) => void | Promise<void>
  readonly template?: string | null // default the demo model's
  readonly withTokenizer?: boolean
  readonly tokenizer?: Tokenizer // default the demo model's
  /** A head that guesses so, and how many guesses there are. */
  readonly guess?: Script
  readonly drafts?: Drafts
}

export interface ScriptedModel {
  readonly model: Model
  readonly tokenizer: Tokenizer
  /** Tokens evaluated so far, by anyone. */
  evaluated(): number
  /** Sequences and held states that are alive. */
  alive(): { sequences: number; held: number }
}

const config = {
  numLayers: 2,
  layerKinds: ['linear_attention', 'full_attention'],
  moeLayers: [0, 1],
  expertLayers: [0, 1],
  fullAttentionInterval: 2,
  numKvHeads: 1,
  headDim: 1,
  linearKeyHeads: 1,
  linearValueHeads: 1,
  linearKeyDim: 2,
  linearValueDim: 1,
  linearConvDim: 5,
  linearConvKernel: 4,
  vocabSize: 8192,
  hiddenSize: 2,
  numExperts: 1,
  eosTokenIds: [END_TOKEN, 8183],
} as unknown as ModelConfig

const NO_STATS = {
  ...Object.fromEntries(
    [
      ...['tokens', 'expertHits', 'expertMisses', 'prefetchReads', 'prefetchHits', 'prefetchWastedBytes', 'bytesRead'],
      ...['readSeconds', 'stallSeconds', 'computeSeconds', 'expertSlots', 'expertSlotsUsed'],
    ].map(name => [name, 0]),
  ),
  readLatencyMs: [],
  phaseSeconds: {},
}

// One set of workers for all models of a test file; they do not keep the process alive.
const sharedTokenizer = demoTokenizer()
const sharedWorkers = sharedTokenizer.then(tokenizer => new TextWorkers(startNodeTextWorker, tokenizer))

export async function scriptedModel(options: ScriptedOptions): Promise<ScriptedModel> {
  const alive = { sequences: 0, held: 0 }
  let evaluated = 0

  class Sequence implements SequenceState {
    bytes = 0
    constructor(public tokens: readonly number[] = []) {
      alive.sequences++
    }
    get length() {
      return this.tokens.length
    }
    async clear() {
      this.tokens = []
    }
    clearPredictions() {}
    async hold(): Promise<HeldState> {
      return new Held(this.tokens)
    }
    async restore(held: HeldState) {
      if ((held as Held).released) throw new Error('a released state was restored')
      this.tokens = (held as Held).tokens
    }
    async exportLayer(layer: number): Promise<LayerState> {
      if (layer === 1) {
        return { kind: 'full_attention', keys: Float32Array.from(this.tokens), values: Float32Array.from(this.tokens) }
      }
      return { kind: 'linear_attention', conv: new Float32Array(15), recurrent: hashOf(this.tokens) }
    }
    async exportRows(_: number, __: KvPart, start: number, rows: number) {
      return Float32Array.from(this.tokens.slice(start, start + rows))
    }
    async beginImport(length: number): Promise<StateImport> {
      const tokens: number[] = new Array(length).fill(-1)
      let recurrent: Float32Array | null = null
      return {
        rows(layer, _, start, rows) {
          if (layer !== 1) throw new Error('wrong layers')
          tokens.splice(start, rows.length, ...rows)
        },
        linear(layer, state) {
          if (layer !== 0) throw new Error('wrong layers')
          recurrent = state.recurrent
        },
        commit: () => {
          if (String(recurrent) !== String(hashOf(tokens)) || length !== tokens.length) throw new Error('torn state')
          this.tokens = tokens
        },
        drop() {},
      }
    }
    importLayers(length: number, layers: Iterable<LayerState>) {
      return importWhole(this, length, layers)
    }
    release() {
      alive.sequences--
    }
  }

  class Held implements HeldState {
    released = false
    readonly bytes = 1000
    constructor(readonly tokens: readonly number[]) {
      alive.held++
    }
    get length() {
      return this.tokens.length
    }
    release() {
      if (this.released) throw new Error('a state was released twice')
      this.released = true
      alive.held--
    }
  }

  const logitsOf = (best: readonly number[]) => {
    const logits = new Float32Array(best.length * config.vocabSize)
    best.forEach((token, row) => {
      logits[row * config.vocabSize + token] = 20
    })
    return logits
  }

  const guessAll = async ({ sequence, token, count, text = [], choose }: DraftRequest) => {
    const { tokens: before } = sequence as Sequence
    if (text.join() !== before.join())
      throw new Error(`guesses are asked for behind ${text}, the sequence has ${before}`)
    const tokens = [...before, token]
    const guesses: number[] = []
    while (guesses.length < count) {
      const best = options.guess!([...tokens, ...guesses])
      const guess = choose ? await choose(logitsOf([best]), guesses.length) : best
      if (guess === null) break
      guesses.push(guess)
    }
    return { guesses }
  }

  const backend = {
    name: 'reference',
    config,
    description: 'scripted',
    chunkTokens: 64,
    createSequence: () => new Sequence(),
    async step(runs: readonly StepRun[], stepOptions?: { signal?: AbortSignal }) {
      await options.onStep?.(runs, stepOptions?.signal)
      stepOptions?.signal?.throwIfAborted()
      return await Promise.all(
        runs.map(async ({ sequence, tokens, output, keep, hidden: asked }) => {
          const own = sequence as Sequence
          const before = own.tokens
          const rows = keep ? tokens.map((_, i) => i + 1) : [tokens.length]
          const best = output === 'none' ? [] : rows.map(end => options.script([...before, ...tokens.slice(0, end)]))
          const logits = output === 'last' || output === 'all' ? logitsOf(best) : null
          const kept = (await keep?.({ logits, argmax: Int32Array.from(best) })) ?? tokens.length
          own.tokens = [...before, ...tokens.slice(0, kept)]
          evaluated += kept
          const hidden = asked ? Float32Array.from(tokens.flatMap(token => [token, before.length])) : undefined
          return { logits, argmax: best.at(keep ? kept - 1 : -1) ?? null, kept, routing: null, hidden }
        }),
      )
    },
    draft: options.guess && (async (requests: readonly DraftRequest[]) => await Promise.all(requests.map(guessAll))),
    failure: null,
    stats: () => NO_STATS,
    residency: () => new Uint8Array(config.moeLayers.length * config.numExperts),
    async close() {},
  } as unknown as Backend

  const files = await demoFiles()
  if (options.template === null) {
    files.delete('chat_template.jinja')
    files.set('tokenizer_config.json', '{}')
  } else if (options.template !== undefined) files.set('chat_template.jinja', options.template)
  const folder = textFolder(files)
  const packed = {
    name: 'scripted',
    folder,
    config,
    fingerprint: options.fingerprint ?? 'abcdef0123456789',
    close: async () => {},
  } as unknown as PackedModel
  const tokenizer = options.tokenizer ?? (await sharedTokenizer)
  const workers = options.tokenizer ? new TextWorkers(startNodeTextWorker, tokenizer) : await sharedWorkers
  const template = await loadChatTemplate(folder, workers)
  const { contextLength = 4096, drafts = 'auto' } = options
  const parts = { packed, backend, contextLength, expertsPerToken: 1, drafts }
  const text = {
    tokenizer: options.withTokenizer === false ? null : tokenizer,
    workers: options.withTokenizer === false ? null : workers,
    template,
    defaults: { temperature: 0 },
    openConstraint: null,
  }
  return {
    model: new Model(parts, text, async () => {}),
    tokenizer,
    evaluated: () => evaluated,
    alive: () => ({ ...alive }),
  }
}

function hashOf(tokens: readonly number[]): Float32Array {
  const key = prefixKey(tokens)
  return Float32Array.of(Number.parseInt(key.slice(0, 5), 16), Number.parseInt(key.slice(8, 13), 16))
}

/** A script that answers each prompt with the next of `answers`: text whose tokens end with the end token. */
export function answering(tokenizer: Tokenizer, answer: (prompt: string) => string | readonly number[]): Script {
  const opening = tokenizer.encode('<|im_start|>assistant\n')
  return tokens => {
    let start = tokens.length - opening.length
    while (start >= 0 && !opening.every((id, i) => tokens[start + i] === id)) start--
    start += opening.length
    // The template opens an answer with a thinking block that is empty, or left open.
    const head = tokenizer.decode(tokens.slice(start))
    const opened = /^<think>\n(\n<\/think>\n\n)?/.exec(head)?.[0] ?? ''
    const promptEnd = start + tokenizer.encode(opened).length
    const given = answer(tokenizer.decode(tokens.slice(0, promptEnd)))
    const ids = typeof given === 'string' ? tokenizer.encode(given) : given
    return ids[tokens.length - promptEnd] ?? END_TOKEN
  }
}
