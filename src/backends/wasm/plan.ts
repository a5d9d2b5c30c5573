// What of a model the wasm backend opens, and how, decided before a weight is read: with its head
// for drafts where that is wanted and fits, and with the slots for experts that memory allows. The
// backend can run a model in several ways, from the usual one to the thriftiest; the first that
// fits is taken.
import { PLANNED_TOKENS } from '../../base/defaults.js'
import { UnsupportedModelError } from '../../base/errors.js'
import { MemoryPlanError } from '../../base/memoryErrors.js'
import type { MemoryFacts } from '../../base/memoryFacts.js'
import { type ExpertFiles, type PackedModel, withoutHead } from '../../files/packed/packedModel.js'
import type { ModelConfig } from '../../model/config.js'
import { kvBytesPerToken, recurrentBytes } from '../../model/sizes.js'
import type { ExpertLayout } from '../../model/tensors.js'
import { type BackendOptions, MOST_GUESSES } from '../backend.js'
import { type Budget, type BudgetWay, planBudget } from '../plan.js'
import { threadCount } from './clampThreads.js'
import { alignUp, MAX_BANK_BYTES } from './memory/bank.js'
import { SLOT_ALIGN } from './memory/bankLayout.js'
import { modelForms } from './memory/placedModel.js'
import { layoutScratch, type Scratch, type ScratchRequest } from './memory/scratch.js'
import type { WasmHost, WasmInternals } from './platform.js'

/** Tokens of a prompt in one step; fewer where memory is short. */
const CHUNK_TOKENS = [256, 128, 64, 32]
const LOCAL_CHUNK_TOKENS = [32] // the caller's own thread is busy for as long as a layer of it takes

const FEW_READERS = 2
const FEW_THREADS = 4

/** Compiled code, what lives between collections, and the thread of chat templates and tokenizers. */
export const PROGRAM_BYTES = 26e6 // measured, see docs/dev/performance-log.md
/** Logits are handed out as arrays of their own; so many of them wait for the collector. */
const GARBAGE_LOGITS = 32
const MOST_GARBAGE = 40e6

/**
 * What a head that may pay can take from experts that do not all fit: every read costs more than
 * most guesses bring.
 */
const HEAD_SHARE = 0.02

/** One way to run a model, and what it takes of memory besides experts and the state of tokens. */
interface WasmWay extends BudgetWay {
  readonly chunkTokens: number
  readonly threads: number
  readonly readers: number
  readonly scratch: Scratch
}

export interface OpeningPlan {
  readonly packed: PackedModel // with its head for drafts, or without
  readonly files: ExpertFiles | null // null: there are no experts
  readonly layouts: readonly ExpertLayout[]
  readonly memory: MemoryFacts
  readonly bankLimit: number
  readonly budget: Budget<WasmWay>
  readonly guesses: number // that a step may have
  readonly noDrafts: string | null // why there is no head, though one was asked for
}

export function planOpening(
  packed: PackedModel,
  options: BackendOptions,
  internals: WasmInternals,
  host: WasmHost,
): OpeningPlan {
  const { config } = packed
  const asked = options.guesses ?? MOST_GUESSES
  const withHead = (guesses: number) => planModel(packed, options, internals, host, { guesses, noDrafts: null })
  const without = (noDrafts: string | null) =>
    planModel(withoutHead(packed), options, internals, host, { guesses: 0, noDrafts })
  if (!options.drafts || config.draftHead === null) return without(null)
  if (options.drafts === 'auto') return planAuto(withHead, without, guesses => takesOf(packed, options, guesses))
  try {
    return withHead(asked) // what is asked for by number is given where it can be
  } catch (error) {
    if (!(error instanceof MemoryPlanError)) throw error
    return without(`memory is short, and ${takesOf(packed, options, asked)}`)
  }
}

/**
 * As many guesses as take next to nothing from experts; one alone takes least, and pays best where
 * experts are read.
 */
function planAuto(
  withHead: (guesses: number) => OpeningPlan,
  without: (noDrafts: string) => OpeningPlan,
  takes: (guesses: number) => string,
): OpeningPlan {
  const plain = without(`${takes(1)}, which experts have a better use for`)
  try {
    for (const guesses of [MOST_GUESSES, 1]) {
      const whole = withHead(guesses)
      if (takesLittle(whole, plain)) return whole
    }
    return plain
  } catch (error) {
    if (!(error instanceof MemoryPlanError)) throw error
    return without(`memory is short, and ${takes(1)}`)
  }
}

function takesOf(packed: PackedModel, options: BackendOptions, guesses: number): string {
  const sequences = options.planned?.sequences ?? 1
  const bytes = guesses * sequences * recurrentBytes(packed.config) + headBytes(packed)
  return `guessing ahead takes ${Math.ceil(bytes / 1e6)} MB more`
}

/**
 * Whether a head that may pay takes next to nothing from experts that do not all fit, and nothing
 * from chunks of prompts and the like.
 */
function takesLittle({ packed: { config }, budget }: OpeningPlan, without: OpeningPlan): boolean {
  if (budget.way.notice !== null) return false
  const all = config.expertLayers.length * config.numExperts
  return budget.slots === all || budget.slots >= (1 - HEAD_SHARE) * without.budget.slots
}

function planModel(
  packed: PackedModel,
  options: BackendOptions,
  internals: WasmInternals,
  host: WasmHost,
  { guesses, noDrafts }: Pick<OpeningPlan, 'guesses' | 'noDrafts'>,
): OpeningPlan {
  const { config, tensors } = packed
  checkShapes(config)
  const files = config.expertLayers.length > 0 ? packed.experts : null
  const usual = host.shared ? CHUNK_TOKENS : LOCAL_CHUNK_TOKENS
  const { precision, expertsPerToken } = options
  const layouts = files?.layouts ?? []
  const forms = modelForms(tensors, layouts, precision)
  const bankLimit = internals.bankLimit ?? MAX_BANK_BYTES
  const expertSize = files?.layout.expertSize ?? 0
  const slotBytes = alignUp(Math.max(expertSize, 1), SLOT_ALIGN)
  const experts = config.expertLayers.length * config.numExperts
  const planned = options.planned ?? { tokens: PLANNED_TOKENS, sequences: 1, isContext: true }
  const memory = host.memory()
  const asked = threadCount(options.threads, host.processors)
  const budget = planBudget({
    memory,
    ways: wasmWays({
      ...{ config, expertsPerToken, forms, slotBytes, bankLimit },
      threads: host.shared ? (asked ?? host.threads) : 1,
      mayHaveFewerThreads: options.threads === undefined,
      chunks: internals.chunkTokens === undefined ? usual : [internals.chunkTokens],
      readers: files ? host.readers(experts * expertSize) : 0,
      threadBytes: host.threadBytes,
      residentBytes: packed.weights.size,
      sequences: planned.sequences,
      guesses,
    }),
    slotBytes,
    experts,
    leastSlots: Math.min(experts, 2 * expertsPerToken), // a layer's have room while the next one's are read
    expertMemory: files ? options.expertMemory : undefined,
    tokens: planned.tokens,
    tokenBytes: kvBytesPerToken(config),
    isContext: planned.isContext,
    threads: { count: asked ?? 1, bytes: host.threadBytes.compute },
  })
  return { packed, files, layouts, memory, bankLimit, budget, guesses, noDrafts }
}

/** Of the head's resident tensors, which are the last ones. */
function headBytes({ tensors, weights }: PackedModel): number {
  return tensors.draftHead === null ? 0 : weights.size - tensors.draftHead.fc.weight.offset
}

/**
 * Kernels work on vectors of four floats; no model of this family has heads that are not multiples
 * of four.
 */
function checkShapes(config: ModelConfig): void {
  for (const field of ['headDim', 'linearKeyDim', 'linearValueDim'] as const) {
    if (config[field] % 4 !== 0) {
      throw new UnsupportedModelError(field, config[field], 'a multiple of 4 on the wasm backend')
    }
  }
}

interface WaysRequest extends Omit<ScratchRequest, 'chunkTokens'> {
  readonly config: ModelConfig
  readonly chunks: readonly number[] // tokens, the usual number first
  readonly mayHaveFewerThreads: boolean // nobody said how many
  readonly readers: number
  readonly threadBytes: { readonly compute: number; readonly reader: number }
  readonly residentBytes: number
  readonly slotBytes: number
  readonly bankLimit: number
  readonly sequences: number
  readonly guesses: number // that a step may have, where there is a head for drafts
}

/**
 * From the usual way to the thriftiest: smaller chunks of a prompt need less scratch memory, fewer
 * threads less of everything; all give the same numbers.
 */
function wasmWays(request: WaysRequest): WasmWay[] {
  const { chunks, readers } = request
  const shortest = chunks[chunks.length - 1]
  const fewReaders = Math.min(FEW_READERS, readers)
  const ways = [wayOf(request, chunks[0], readers, request.threads)]
  for (const chunk of chunks.slice(1)) ways.push(wayOf(request, chunk, fewReaders, request.threads))
  for (const threads of request.mayHaveFewerThreads ? [FEW_THREADS, 1] : []) {
    if (threads < request.threads) ways.push(wayOf(request, shortest, fewReaders, threads))
  }
  return ways
}

function wayOf(request: WaysRequest, chunkTokens: number, readers: number, threads: number): WasmWay {
  const { config, threadBytes, residentBytes, slotBytes, bankLimit, sequences, guesses } = request
  const scratch = layoutScratch({ ...request, chunkTokens, threads })
  const isUsual = chunkTokens === request.chunks[0] && threads === request.threads
  const computing = threads === 1 ? '1 compute thread' : `${threads} compute threads`
  const thrift = `prompts in chunks of ${chunkTokens} tokens, ${computing}, ${readers} readers`
  // Every bank begins with a scratch region: those of weights have one, and each slot pays its part
  // of the others.
  const banks = Math.max(1, Math.ceil(residentBytes / Math.max(1, bankLimit - scratch.bytes)))
  return {
    chunkTokens,
    threads,
    readers,
    scratch,
    slotCost: slotBytes * (1 + scratch.bytes / Math.max(slotBytes, bankLimit - scratch.bytes)),
    parts: [
      { what: 'weights', bytes: residentBytes },
      { what: 'workspace', bytes: banks * scratch.bytes },
      // Of each sequence the present one and the next, or one for each token of a step with
      // guesses; and one that stands for the beginning.
      { what: 'recurrent state', bytes: (1 + setsPerSequence(config, guesses) * sequences) * recurrentBytes(config) },
      { what: `${threads + readers} threads`, bytes: threads * threadBytes.compute + readers * threadBytes.reader },
      { what: 'the program', bytes: PROGRAM_BYTES + garbageBytes(config) },
    ],
    notice: isUsual ? null : `memory is short: ${thrift}`,
  }
}

/** Recurrent states of a sequence while a step with so many guesses runs. */
function setsPerSequence({ draftHead }: ModelConfig, guesses: number): number {
  return draftHead === null ? 2 : 2 + guesses
}

/** Of logits that were handed out and wait for the collector. */
export function garbageBytes({ vocabSize }: ModelConfig): number {
  return Math.min(MOST_GARBAGE, GARBAGE_LOGITS * vocabSize * 4)
}
