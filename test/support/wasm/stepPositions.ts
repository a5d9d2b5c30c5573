// What tests do to a wasm backend at places of its workers' protocol, by count and not by time, and how they look whether
// all is well afterwards. Runs in Node and in a tab: it throws, and knows no test framework.
import type { SequenceState } from '#moeflux/backends/backend.js'
import type { TeamGovernor } from '#moeflux/backends/wasm/teamGovernor.js'
import type { WasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import type { GatePlace, StepGate } from '#moeflux/backends/wasm/workers/stepGate.js'
import { yieldToEventLoop } from '#moeflux/base/yieldToEventLoop.js'
import { readState } from '#moeflux/experts/readers/readRing.js'

export interface GatedWasm {
  readonly backend: WasmBackend
  readonly gate: StepGate
  readonly threads: number
  /** Whether reads of experts fail from now on. */
  failReads(on: boolean): void
  close(): Promise<void>
}

/** Workers that small steps run on from now on. */
export function setWorkers({ backend }: Pick<GatedWasm, 'backend'>, count: number): void {
  // All that a governor can be asked, so that nothing new is missing here.
  const governor: Pick<TeamGovernor, keyof TeamGovernor> = {
    size: count,
    sizeFor: () => count,
    isTrying: false,
    stepDone() {},
    interrupt() {},
  }
  Object.assign(backend, { governor })
}

/** Resolves when `work` is over, or when a worker stands at the gate: whether it does. */
export async function reachedOr({ gate }: GatedWasm, work: Promise<unknown>): Promise<boolean> {
  await Promise.race([gate.reached(), work.catch(() => {})])
  return gate.isReached
}

const PATIENCE_TURNS = 300

/** While one worker is held: until all others of a job wait for it, or have left it, or `work` is over. */
export async function othersWait({ backend, threads }: GatedWasm, work: Promise<unknown>): Promise<void> {
  const { board } = backend.runtime
  let isOver = false
  const over = () => {
    isOver = true
  }
  work.then(over, over)
  for (let turn = 0; turn < PATIENCE_TURNS && !isOver; turn++) {
    if (board.words.load(board.teamBase) >= threads - 1) return
    await yieldToEventLoop()
  }
}

/** Until no read is among its retries. */
async function readsOver({ backend }: GatedWasm): Promise<void> {
  const { ring } = backend.runtime
  if (!ring) return // no experts, no reads
  const isReading = () => Array.from({ length: ring.entries }, (_, i) => ring.state(i)).includes(readState.reading)
  while (isReading()) await yieldToEventLoop()
}

export const PROMPT = [3, 141, 59, 26, 5] // more rows than workers prepare for themselves
export const TOKEN = 35

/** A prompt and one token after it. */
export async function evaluate(
  { backend }: GatedWasm,
  sequence: SequenceState,
  signal?: AbortSignal,
  onStep?: (tokens: number) => void,
): Promise<Float32Array[]> {
  const logits: Float32Array[] = []
  for (const [tokens, phase] of [[PROMPT, 'prompt'] as const, [[TOKEN], 'decode'] as const]) {
    const [output] = await backend.step([{ sequence, tokens, phase, output: 'last' }], { signal })
    onStep?.(tokens.length)
    logits.push(output.logits as Float32Array)
  }
  return logits
}

/** Evaluations that never come to a place, before there is none such: a read may be over before anybody waits for it. */
const MISSES: Readonly<Record<GatePlace, number>> = { meet: 1, wait: 5 }

type Failure = Error & { readonly code?: string }

/** How an evaluation ended: null, or what went wrong. */
type Ending = Promise<Failure | null>

export class StepPositions {
  private constructor(
    private readonly opened: GatedWasm,
    private readonly stride: number, // of places that are looked at
    private readonly sequence: SequenceState,
    private readonly other: SequenceState,
    private readonly want: readonly Float32Array[],
  ) {}

  static async on(opened: GatedWasm, stride: number): Promise<StepPositions> {
    setWorkers(opened, opened.threads)
    const [sequence, other] = [opened.backend.createSequence(), opened.backend.createSequence()]
    return new StepPositions(opened, stride, sequence, other, await evaluate(opened, sequence))
  }

  /** An abort at every place where a worker meets others. */
  async abortEverywhere(worker: number): Promise<{ places: number; aborted: number }> {
    const { opened } = this
    let aborted = 0
    const places = await this.everyPassage(worker, 'meet', async (ending, controller) => {
      controller.abort(new Error('enough'))
      // From here on in single steps: it is always the last, and nobody may go on without it.
      let isOver = false
      ending.then(() => {
        isOver = true
      })
      do {
        await othersWait(opened, ending)
        if (isOver && worker > 0) await this.decodeAlone()
        opened.gate.arm(worker, 1)
      } while (await reachedOr(opened, ending))
      opened.gate.open()
      const failure = await ending
      if (failure === null) return
      if (failure.message !== 'enough') throw failure
      aborted++
    })
    return { places, aborted }
  }

  /** An abort whenever the leader waits for a read. */
  async abortWaits(): Promise<number> {
    return await this.everyPassage(0, 'wait', async (ending, controller) => {
      controller.abort(new Error('enough'))
      this.opened.gate.open()
      const failure = await ending
      if (failure?.message !== 'enough') throw failure ?? new Error('the abort was not heard')
    })
  }

  /** A disk that fails from every such place on. */
  async failReads(place: GatePlace): Promise<{ places: number; failed: number }> {
    const { opened } = this
    let failed = 0
    const places = await this.everyPassage(0, place, async ending => {
      opened.failReads(true)
      opened.gate.open()
      const failure = await ending
      opened.failReads(false)
      await readsOver(opened)
      if (failure === null) return
      if (failure.code !== 'EXPERT_READ') throw failure
      failed++
    })
    return { places, failed }
  }

  /** Holds a worker at its n-th passage of an evaluation, for every n, and looks what comes after; how many there were. */
  private async everyPassage(
    worker: number,
    place: GatePlace,
    act: (ending: Ending, controller: AbortController) => Promise<void>,
  ): Promise<number> {
    const { opened, sequence } = this
    let missed = 0
    for (let n = 1; ; ) {
      await sequence.clear()
      const controller = new AbortController()
      opened.gate.arm(worker, n, 'hold', place)
      let done = 0
      const onStep = (tokens: number) => {
        done += tokens
      }
      const ending: Ending = evaluate(opened, sequence, controller.signal, onStep).then(
        () => null,
        error => error as Failure,
      )
      if (!(await reachedOr(opened, ending))) {
        opened.gate.open()
        const failure = await ending
        if (failure) throw failure
        if (++missed === MISSES[place]) return n - 1
        continue
      }
      await act(ending, controller)
      if (sequence.length !== done) throw new Error(`after place ${n}: ${sequence.length} tokens, ${done} were done`)
      await this.checkSound(n)
      n += this.stride
    }
  }

  /** A step of the other sequence on the leader alone. */
  private async decodeAlone(): Promise<void> {
    setWorkers(this.opened, 1)
    await this.opened.backend.step([{ sequence: this.other, tokens: [TOKEN], phase: 'decode', output: 'last' }])
    setWorkers(this.opened, this.opened.threads)
  }

  /** Both sequences from the beginning; small steps on one worker, then on all: what was left behind would show. */
  private async checkSound(n: number): Promise<void> {
    const { opened } = this
    for (const sequence of [this.sequence, this.other]) {
      setWorkers(opened, sequence === this.sequence ? 1 : opened.threads)
      await sequence.clear()
      const got = await evaluate(opened, sequence)
      for (const [step, logits] of got.entries()) {
        const wrong = logits.findIndex((value, i) => !Object.is(value, this.want[step][i]))
        if (wrong < 0) continue
        throw new Error(`after place ${n}: logit ${wrong} is ${logits[wrong]}, not ${this.want[step][wrong]}`)
      }
    }
    setWorkers(opened, opened.threads)
  }
}
