// A seeded walk over a backend with a bad disk: prompts, tokens, batches, rewinds and aborts, with reads that fail, come up
// short, hang or take long at random positions. Whatever comes of a call is compared, to the bit, with what a backend of the
// same kind gives that has all experts and a good disk, call by call. Runs in Node and in a tab, so it needs nothing of either.
import type { Backend, HeldState, SequenceState, StepRun } from '#moeflux/backends/backend.js'
import type { FaultKind } from '#moeflux/experts/readers/readFaults.js'
import { seededRandom } from '../random.js'
import type { BadDisk } from './badDisk.js'

export interface FaultWalkOptions {
  readonly backend: Backend // with few slots
  readonly disk: BadDisk
  readonly oracle: Backend
  readonly seed: number
  readonly steps: number
  /** How far logits may be apart, relative to the largest; default: not a bit. */
  readonly tolerance?: number
}

export interface FaultWalkReport {
  /** What went wrong first; null: nothing. */
  readonly problem: string | null
  readonly calls: number
  readonly faults: number // that a call met
  readonly failures: number // calls that failed with ExpertReadError
  readonly aborts: number
}

type Phase = StepRun['phase']
interface Call {
  readonly phase: Phase
  readonly tokens: readonly number[]
}

/** The calls that a sequence is made of, and what undisturbed ones give. */
class Oracle {
  private readonly known = new Map<string, { readonly held: HeldState; readonly logits: Float32Array }>()
  private readonly sequence: SequenceState

  constructor(private readonly backend: Backend) {
    this.sequence = backend.createSequence()
  }

  async logitsOf(history: readonly Call[]): Promise<Float32Array> {
    return (await this.after(history)).logits
  }

  private async after(history: readonly Call[]): Promise<{ held: HeldState; logits: Float32Array }> {
    const key = JSON.stringify(history)
    const known = this.known.get(key)
    if (known !== undefined) return known
    const before = history.length > 1 ? await this.after(history.slice(0, -1)) : null
    if (before === null) await this.sequence.clear()
    else await this.sequence.restore(before.held)
    const [{ logits }] = await this.backend.step([
      { sequence: this.sequence, ...history[history.length - 1], output: 'last' },
    ])
    const made = { held: await this.sequence.hold(), logits: logits as Float32Array }
    this.known.set(key, made)
    return made
  }
}

interface Walker {
  readonly sequence: SequenceState
  history: Call[]
  checkpoint: { readonly held: HeldState; readonly history: Call[] } | null
}

type Fault =
  | { readonly kind: 'none' }
  | { readonly kind: 'fails'; readonly how: FaultKind; readonly read: number }
  | { readonly kind: 'hangs'; readonly read: number; readonly aborts: boolean; readonly how: FaultKind }
  | { readonly kind: 'gone'; readonly how: FaultKind }
  | { readonly kind: 'abort'; readonly turns: number }

const longest = 24 // tokens of a sequence

export async function faultWalk(options: FaultWalkOptions): Promise<FaultWalkReport> {
  const { backend, disk, seed, steps, tolerance = 0 } = options
  const random = seededRandom(seed)
  const below = (n: number) => Math.floor(random() * n)
  const oneOf = <T>(...values: readonly T[]): T => values[below(values.length)]
  const oracle = new Oracle(options.oracle)
  const walkers: Walker[] = Array.from({ length: 3 }, () => ({
    sequence: backend.createSequence(),
    history: [],
    checkpoint: null,
  }))
  const counts = { calls: 0, faults: 0, failures: 0, aborts: 0 }
  const token = () => below(backend.config.vocabSize)

  const drawFault = (): Fault => {
    const how = oneOf<FaultKind>('error', 'short', 'end', 'flip')
    const draw = random()
    if (draw < 0.3) return { kind: 'none' }
    if (draw < 0.6) return { kind: 'fails', how, read: below(12) }
    if (draw < 0.85) {
      return { kind: 'hangs', read: below(12), aborts: random() < 0.7, how: oneOf<FaultKind>('none', how) }
    }
    return draw < 0.92 ? { kind: 'gone', how } : { kind: 'abort', turns: below(8) }
  }

  /** Some walkers go on by a call each, in one step, on a disk with a fault. */
  const step = async (group: readonly Walker[], calls: readonly Call[], fault: Fault): Promise<void> => {
    const controller = new AbortController()
    const reason = new Error('enough')
    if (fault.kind === 'fails') disk.pick(fault.how, fault.read)
    else if (fault.kind === 'hangs') disk.pickAndHold(fault.read, fault.how)
    else disk.set(fault.kind === 'gone' ? fault.how : 'none')
    let isOver = false
    const runs = group.map(({ sequence }, i): StepRun => ({ sequence, ...calls[i], output: 'last' }))
    const running = backend
      .step(runs, { signal: controller.signal })
      .then(outputs => outputs.map(({ logits }) => logits as Float32Array))
      .catch((error: Error) => error)
      .finally(() => {
        isOver = true
      })
    if (fault.kind === 'hangs') {
      while (!disk.isWaiting && !isOver) await turn()
      if (disk.isWaiting) counts.faults++
      if (fault.aborts) {
        controller.abort(reason)
        await running // though the read hangs on
      }
    } else if (fault.kind === 'abort') {
      for (let i = 0; i < fault.turns && !isOver; i++) await turn()
      controller.abort(reason)
    }
    if (fault.kind === 'hangs') disk.letGo()
    const outcome = await running
    if (fault.kind === 'fails' && disk.isMet) counts.faults++
    if (fault.kind === 'gone') counts.faults++
    disk.set('none')
    counts.calls++
    if (outcome instanceof Error) {
      const isFailure = (outcome as Error & { code?: string }).code === 'EXPERT_READ'
      if (isFailure) counts.failures++
      else if (outcome === reason) counts.aborts++
      else throw outcome
      if (isFailure && fault.kind === 'none') throw new Error(`failed on a good disk: ${outcome.message}`)
      for (const walker of group) checkLength(walker)
      return
    }
    for (const [i, walker] of group.entries()) {
      walker.history = [...walker.history, calls[i]]
      checkLength(walker)
      same(
        outcome[i],
        await oracle.logitsOf(walker.history),
        tolerance,
        `${calls[i].phase} after ${walker.sequence.length} tokens`,
      )
    }
  }

  const checkLength = ({ sequence, history }: Walker) => {
    const want = history.reduce((sum, call) => sum + call.tokens.length, 0)
    if (sequence.length !== want) throw new Error(`a sequence has ${sequence.length} tokens, want ${want}`)
  }

  /** Everything a sequence was told, told again to a fresh one. */
  const replay = async ({ history }: Walker) => {
    const sequence = backend.createSequence()
    let logits: Float32Array | null = null
    for (const call of history) {
      ;[{ logits }] = await backend.step([{ sequence, ...call, output: 'last' }])
    }
    sequence.release()
    if (logits !== null) same(logits, await oracle.logitsOf(history), tolerance, 'a fresh evaluation')
  }

  const goOn = async () => {
    const walker = walkers[below(walkers.length)]
    const action = random()
    const isFull = walker.sequence.length > longest
    if (isFull || action < 0.06) {
      await walker.sequence.clear()
      walker.history = []
    } else if (action < 0.12) {
      walker.checkpoint?.held.release()
      walker.checkpoint = { held: await walker.sequence.hold(), history: walker.history }
    } else if (action < 0.2 && walker.checkpoint !== null) {
      await walker.sequence.restore(walker.checkpoint.held)
      walker.history = walker.checkpoint.history
    } else if (action < 0.26) await replay(walker)
    else if (action < 0.36) {
      const group = walkers.filter(({ sequence }) => sequence.length > 0 && sequence.length <= longest)
      const calls = group.map((): Call => ({ phase: 'decode', tokens: [token()] }))
      if (group.length > 0) await step(group, calls, drawFault())
    } else if (action < 0.65 && walker.sequence.length > 0) {
      await step([walker], [{ phase: 'decode', tokens: [token()] }], drawFault())
    } else {
      const tokens = Array.from({ length: 1 + below(5) }, token)
      await step([walker], [{ phase: 'prompt', tokens }], drawFault())
    }
  }

  let problem: string | null = null
  for (let i = 0; i < steps && problem === null; i++) {
    try {
      await goOn()
    } catch (error) {
      problem = `seed ${seed}, step ${i}: ${(error as Error).message}`
    }
  }
  disk.set('none')
  for (const { sequence, checkpoint } of walkers) {
    checkpoint?.held.release()
    sequence.release()
  }
  return { problem, ...counts }
}

function same(got: Float32Array, want: Float32Array, tolerance: number, what: string): void {
  const most = tolerance * want.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0)
  const at = got.findIndex((value, i) => !Object.is(value, want[i]) && !(Math.abs(value - want[i]) <= most))
  if (at >= 0 || got.length !== want.length) throw new Error(`${what}: logit ${at} is ${got[at]}, want ${want[at]}`)
}

function turn(): Promise<void> {
  return new Promise(resolve => setTimeout(resolve))
}
