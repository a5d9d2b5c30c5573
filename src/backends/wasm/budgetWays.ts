// The ways in which the wasm backend can run a model, from the usual one to the thriftiest, each with what it takes of
// memory besides experts and the state of tokens. Smaller chunks of a prompt need less scratch memory, fewer threads less
// of everything; both give the same numbers, later. Measured sizes are in docs/performance-log.md.
import type { ModelConfig } from '../../model/config.js'
import { recurrentBytes } from '../../model/sizes.js'
import type { BudgetWay } from '../plan.js'
import { layoutScratch, type Scratch, type ScratchRequest } from './memory/scratch.js'

/** Compiled code, what lives between collections, and the thread that renders chats and encodes text. */
export const PROGRAM_BYTES = 26e6
/** Logits are handed out as arrays of their own; so many of them wait for the collector. */
const GARBAGE_LOGITS = 32
const MOST_GARBAGE = 40e6

/** Recurrent states of a sequence while a step with so many guesses runs. */
function setsPerSequence({ draftHead }: ModelConfig, guesses: number): number {
  return draftHead === null ? 2 : 2 + guesses
}

/** Of logits that were handed out and wait for the collector. */
export function garbageBytes({ vocabSize }: ModelConfig): number {
  return Math.min(MOST_GARBAGE, GARBAGE_LOGITS * vocabSize * 4)
}

export interface WasmWay extends BudgetWay {
  readonly chunkTokens: number
  readonly threads: number
  readonly readers: number
  readonly scratch: Scratch
}

export interface WaysRequest extends Omit<ScratchRequest, 'chunkTokens'> {
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

const FEW_READERS = 2
const FEW_THREADS = 4

export function wasmWays(request: WaysRequest): WasmWay[] {
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
  // Every bank begins with a scratch region: those of weights have one, and each slot pays its part of the others.
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
      // Of each sequence the present one and the next, or one for each token of a step with guesses; and one that stands for the beginning.
      { what: 'recurrent state', bytes: (1 + setsPerSequence(config, guesses) * sequences) * recurrentBytes(config) },
      { what: `${threads + readers} threads`, bytes: threads * threadBytes.compute + readers * threadBytes.reader },
      { what: 'the program', bytes: PROGRAM_BYTES + garbageBytes(config) },
    ],
    notice: isUsual ? null : `memory is short: ${thrift}`,
  }
}
