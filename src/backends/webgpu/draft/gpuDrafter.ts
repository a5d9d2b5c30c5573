// The head for drafts on the webgpu backend: chains of guesses, as long as they are wanted and somebody chooses them. Writes keys
// and values past the committed length and commits nothing.
import { NOT_FINITE } from '../../../ops/argmax/argmax.gpu.js'
import type { DraftOutput, DraftRequest } from '../../backend.js'
import type { GpuSequence } from '../memory/gpuSequence.js'
import { MAX_DECODE_BATCH } from '../memory/workspace.js'
import type { Guesser, GuessOrders, GuessRow, OnGuessing } from './draftRunner.js'

export interface DraftWays {
  /** Where all experts are in slots. */
  readonly resident: Guesser
  readonly streaming: Guesser
}

/** A request whose sequence the head knows the last token of. */
interface Chain {
  readonly request: DraftRequest
  readonly row: GuessRow
  readonly guesses: number[]
  isOpen: boolean
}

export async function guessAll(
  { resident, streaming }: DraftWays,
  isAllResident: () => boolean,
  requests: readonly DraftRequest[],
  signal: AbortSignal | undefined,
  onSubmitted?: OnGuessing,
): Promise<DraftOutput[]> {
  const chains = new Map(requests.flatMap(request => chainOf(request)))
  const all = [...chains.values()]
  for (let first = 0; first < all.length; first += MAX_DECODE_BATCH) {
    const guesser = isAllResident() ? resident : streaming
    await extendAll(guesser, all.slice(first, first + MAX_DECODE_BATCH), signal, onSubmitted)
  }
  return requests.map(request => ({ guesses: chains.get(request)?.guesses ?? [] }))
}

function chainOf(request: DraftRequest): [DraftRequest, Chain][] {
  const { draft, state, length, table } = request.sequence as GpuSequence
  if (draft === null) return []
  const { token, count } = request
  const where = { position: length, pages: [...table.pages], stateIn: state, stateOut: state }
  const row = { ...where, firstRow: draft.firstRow, tokens: [token], count }
  return [[request, { request, row, guesses: [], isOpen: true }]]
}

async function extendAll(
  guesser: Guesser,
  chains: readonly Chain[],
  signal: AbortSignal | undefined,
  onSubmitted?: OnGuessing,
): Promise<void> {
  guesser.begin(chains.map(({ row }) => row))
  const most = Math.max(...chains.map(({ row }) => row.count))
  const isChosen = chains.some(({ request }) => request.choose)
  const orders: GuessOrders = { signal, onSubmitted, wantsLogits: isChosen }
  for (let index = 0; index < most && chains.some(({ isOpen }) => isOpen); ) {
    const made = await guesser.extend(isChosen ? 1 : most, orders)
    for (const [row, chain] of chains.entries()) await take(guesser, chain, row, index, made)
    index += made.length
  }
}

async function take(guesser: Guesser, chain: Chain, row: number, index: number, made: readonly Uint32Array[]) {
  const { request, guesses } = chain
  for (const best of made) {
    // What is not finite is no guess, whatever it is.
    chain.isOpen &&= index < request.count && best[row] !== NOT_FINITE
    if (!chain.isOpen) return
    const guess = request.choose ? await request.choose(await guesser.readLogits(row), index) : best[row]
    chain.isOpen = guess !== null
    if (guess === null) return
    guesses.push(guess)
    if (guess !== best[row]) guesser.put(row, guess)
    index++
  }
}
