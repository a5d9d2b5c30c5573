// Whether a model fits into memory, and how many experts are kept there: one rule for backends. Pure. A backend says what
// it takes besides experts, piece by piece, and in which thriftier ways it could run; out comes the best way that fits and
// a number of slots, or an error that says by how much it does not fit and which options would help.
//
// Everything that grows after the model was opened is in the sum from the start: state for the tokens that were planned,
// threads, garbage that waits for the collector. Where the system would end the process (`ceiling`) nothing is left to luck.
import { OptionError } from '../base/errors.js'
import { MemoryPlanError, type Remedy } from '../base/memoryErrors.js'
import type { MemoryFacts } from '../base/memoryFacts.js'

/** The part of what is left that experts take when nobody says how much. A control group is there for this program. */
const SHARE = { machine: 0.7, cgroup: 0.9 }

/** Left alone for what no plan knows of. */
const SPARE_BYTES = 16e6
const SPARE_SHARE = 0.01 // of the limit

export interface BudgetPart {
  readonly what: string // for people
  readonly bytes: number
}

export interface BudgetWay {
  readonly parts: readonly BudgetPart[] // besides experts and the state of tokens
  /** What a slot costs with all that comes with it; at least its own bytes. */
  readonly slotCost: number
  /** For people, where it is not the usual way. */
  readonly notice: string | null
}

/** The machine's memory beside the GPU's. */
export interface HostSide {
  readonly memory: MemoryFacts
  readonly way: BudgetWay // what the host's part takes besides experts
  readonly slotBytes: number
  readonly expertMemory?: number // asked for
  readonly threads: { readonly count: number; readonly bytes: number }
}

export interface BudgetRequest<Way extends BudgetWay> {
  readonly memory: MemoryFacts
  readonly ways: readonly Way[] // the usual one first, each next one thriftier
  readonly slotBytes: number // of one expert in memory
  readonly experts: number // of all layers
  readonly leastSlots: number
  readonly expertMemory: number | undefined // asked for
  readonly tokens: number // that fit whatever happens later
  readonly tokenBytes: number // of state, each
  readonly isContext: boolean // `tokens` is the context's length, and a shorter one would help
  /** Threads that compute, and what one of them takes. */
  readonly threads: { readonly count: number; readonly bytes: number }
}

export interface Budget<Way extends BudgetWay> {
  readonly way: Way
  readonly slots: number
  readonly bytes: number // that all of it takes, with experts and the state of tokens
  /** For people, when it was the machine's size that decided. */
  readonly notice: string | null
}

export function planBudget<Way extends BudgetWay>(request: BudgetRequest<Way>): Budget<Way> {
  const { memory, ways, experts } = request
  const asked = askedSlots(request)
  const spare = spareBytes(memory)
  for (const way of ways) {
    const fixed = fixedBytes(request, way)
    if (fixed + (asked ?? request.leastSlots) * way.slotCost + spare > memory.ceiling) continue
    const room = Math.max(0, memory.bytes - fixed - spare) * SHARE[memory.limitedBy]
    const fitting = Math.max(request.leastSlots, Math.min(Math.floor(room / way.slotCost), experts))
    const slots = asked ?? fitting
    return { way, slots, bytes: fixed + slots * way.slotCost, notice: noticeOf(request, way, slots) }
  }
  throw refusal(request, asked)
}

/** What growing state must leave of `ceiling`. */
export function spareBytes(memory: MemoryFacts): number {
  return Number.isFinite(memory.ceiling) ? SPARE_BYTES + SPARE_SHARE * memory.limit : 0
}

export function memoryLimitText({ limit, limitedBy }: MemoryFacts): string {
  return limitedBy === 'cgroup'
    ? `the control group's limit of ${megabytes(limit)}`
    : `the machine's ${megabytes(limit)}`
}

function askedSlots({ expertMemory, slotBytes, leastSlots, experts }: BudgetRequest<BudgetWay>): number | null {
  if (expertMemory === undefined) return null
  if (experts === 0) throw new OptionError('expertMemory', expertMemory, 'nothing: this model has no experts')
  const slots = Math.floor(expertMemory / slotBytes)
  if (slots >= leastSlots) return Math.min(slots, experts)
  const want = `at least ${leastSlots * slotBytes} bytes (${leastSlots} experts of ${slotBytes})`
  throw new OptionError('expertMemory', expertMemory, want)
}

function fixedBytes({ tokens, tokenBytes }: BudgetRequest<BudgetWay>, { parts }: BudgetWay): number {
  return parts.reduce((sum, { bytes }) => sum + bytes, tokens * tokenBytes)
}

function noticeOf(request: BudgetRequest<BudgetWay>, way: BudgetWay, slots: number): string | null {
  const { experts, slotBytes, expertMemory } = request
  const chosen = expertMemory === undefined && slots < experts
  const bytes = slots * slotBytes
  const room = bytes < 1e9 ? megabytes(bytes) : `${(bytes / 1e9).toFixed(1)} GB`
  const size = `expert memory: ${room}, ${slots} of ${experts} experts; the others are read when needed`
  const lines = [chosen ? size : null, way.notice].filter(line => line !== null)
  return lines.length === 0 ? null : lines.join('; ')
}

/** Said of the thriftiest way: what is missing there is missing everywhere. */
function refusal(request: BudgetRequest<BudgetWay>, asked: number | null): MemoryPlanError {
  const { memory, ways, tokens, tokenBytes, slotBytes, leastSlots, threads } = request
  const way = ways[ways.length - 1]
  const slots = asked ?? leastSlots
  const needed = fixedBytes(request, way) + slots * way.slotCost
  const free = Math.max(0, memory.ceiling - spareBytes(memory))
  const missing = needed - free
  const parts: BudgetPart[] = [
    ...way.parts,
    { what: `state of ${tokens} tokens`, bytes: tokens * tokenBytes },
    ...(slots === 0 ? [] : [{ what: `${slots} experts`, bytes: slots * way.slotCost }]),
  ]
  const savings: Saving[] = [
    {
      option: 'expertMemory',
      gain: (slots - leastSlots) * way.slotCost,
      value: bytes => (slots - Math.ceil(bytes / way.slotCost)) * slotBytes,
    },
    {
      option: 'contextLength',
      gain: request.isContext ? Math.max(0, tokens - LEAST_TOKENS) * tokenBytes : 0,
      value: bytes => Math.floor((tokens - bytes / tokenBytes) / LEAST_TOKENS) * LEAST_TOKENS,
    },
    {
      option: 'threads',
      gain: (threads.count - 1) * threads.bytes,
      value: bytes => threads.count - Math.ceil(bytes / threads.bytes),
    },
  ]
  const remedies = SLACKS.map(slack => remediesFor(missing + slack, savings)).find(enough => enough.length > 0) ?? []
  const weights = parts.find(({ what }) => what === 'weights')?.bytes ?? 0
  const weightsRoom = request.experts === 0 ? Math.max(0, weights - missing) : undefined
  return new MemoryPlanError({ needed, free, limit: memoryLimitText(memory), parts, remedies, weightsRoom })
}

const LEAST_TOKENS = 64
/** What is free differs by a megabyte or two from one start to the next: a value that is named leaves as much over as it can. */
const SLACKS = [4e6, 2e6, 1e6, 0] // bytes

interface Saving {
  readonly option: Remedy['option']
  readonly gain: number // bytes that the option can save at most
  value(bytes: number): number // of the option, where it saves so many
}

/** One option that is enough; else as few as are, together; none where all of them are not. */
function remediesFor(missing: number, savings: readonly Saving[]): Remedy[] {
  const enough = savings.find(({ gain }) => gain >= missing)
  if (enough !== undefined) return [{ option: enough.option, value: enough.value(missing) }]
  const remedies: Remedy[] = []
  let left = missing
  for (const { option, gain, value } of [...savings].sort((a, b) => b.gain - a.gain)) {
    if (gain === 0 || left <= 0) continue
    remedies.push({ option, value: value(Math.min(gain, left)) })
    left -= gain
  }
  return left <= 0 ? remedies : []
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1e6)} MB`
}
