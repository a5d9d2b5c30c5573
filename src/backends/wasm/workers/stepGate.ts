// A gate for tests: shared words that stop one worker at a chosen place of the protocol, counted and not timed, and let it
// go on, or fail, when the tester says so. Without the words no worker knows that this exists.
import { ReadRing } from '../../../experts/readers/readRing.js'
import { JobBoard } from './jobBoard.js'
import type { BoardShape } from './jobLayout.js'
import { Team } from './team.js'

/**
 * meet: where a worker asks for a job, has one, comes to a barrier, has passed it. wait: where the leader waits for a
 * read.
 */
export type GatePlace = 'meet' | 'wait'
const PLACES: readonly GatePlace[] = ['meet', 'wait']

/** hold: stands there until `open`. throw: fails there, as a kernel that traps would. */
export type GateAction = 'hold' | 'throw'
const ACTIONS: readonly GateAction[] = ['hold', 'throw']

const WORKER = 0
const PLACE = 1
const LEFT = 2 // passages until the worker is stopped, 0 or less: it is not
const ACTION = 3
const STATE = 4 // 1: the worker stands at the gate, or has failed there
const WORDS = 5

const NOBODY = -1
const AWAY = 0
const STANDS = 1
const LOOK_AGAIN_MS = 10

type WaitAsync = (words: Int32Array, index: number, value: number) => { readonly value: Promise<string> | string }

/** The tester's side. */
export class StepGate {
  readonly buffer = new SharedArrayBuffer(WORDS * 4)
  private readonly words = new Int32Array(this.buffer)

  constructor() {
    this.words[WORKER] = NOBODY
  }

  /** Stops a worker at its n-th passage of such a place from now on, counted from 1. */
  arm(worker: number, n: number, action: GateAction = 'hold', place: GatePlace = 'meet'): void {
    const { words } = this
    // Who stands there goes on when it is counted again; another worker may come as soon as it is.
    const standsThere = this.isReached && Atomics.load(words, WORKER) === worker
    Atomics.store(words, LEFT, 0)
    if (!standsThere) this.let()
    Atomics.store(words, WORKER, worker)
    Atomics.store(words, PLACE, PLACES.indexOf(place))
    Atomics.store(words, ACTION, ACTIONS.indexOf(action))
    Atomics.store(words, LEFT, n)
    if (standsThere) this.let()
  }

  /** Lets the worker that stands there go on, and stops nobody any more. */
  open(): void {
    Atomics.store(this.words, WORKER, NOBODY)
    this.let()
  }

  private let(): void {
    Atomics.store(this.words, STATE, AWAY)
    Atomics.notify(this.words, STATE)
  }

  get isReached(): boolean {
    return Atomics.load(this.words, STATE) === STANDS
  }

  /** Resolves when the worker stands at the gate, or has failed there. */
  async reached(): Promise<void> {
    const { waitAsync } = Atomics as unknown as { waitAsync: WaitAsync }
    while (!this.isReached) await waitAsync(this.words, STATE, AWAY).value
  }
}

/** A worker's side. */
class Turnstile {
  private readonly words: Int32Array

  constructor(
    buffer: SharedArrayBuffer,
    private readonly worker: number,
  ) {
    this.words = new Int32Array(buffer)
  }

  pass(place: GatePlace): void {
    const { words } = this
    if (Atomics.load(words, WORKER) !== this.worker || PLACES[Atomics.load(words, PLACE)] !== place) return
    if (Atomics.sub(words, LEFT, 1) !== 1) return
    Atomics.store(words, STATE, STANDS)
    Atomics.notify(words, STATE)
    if (ACTIONS[Atomics.load(words, ACTION)] === 'throw') throw new Error('injected failure')
    // It may have been opened just before this worker came to stand here.
    while (Atomics.load(words, STATE) === STANDS && Atomics.load(words, WORKER) === this.worker) {
      Atomics.wait(words, STATE, STANDS, LOOK_AGAIN_MS)
    }
  }
}

/** What a worker meets the others through, with a gate in every place. */
export function gatedParts(
  gate: SharedArrayBuffer,
  worker: number,
  shape: BoardShape,
  buffer: ArrayBufferLike,
): { board: JobBoard; team: Team; openRing: (ring: ArrayBufferLike) => ReadRing } {
  const turnstile = new Turnstile(gate, worker)
  const board = new GatedBoard(turnstile, shape, buffer)
  return {
    board,
    team: new GatedTeam(turnstile, worker, board),
    openRing: ring => new GatedRing(turnstile, ring),
  }
}

class GatedBoard extends JobBoard {
  constructor(
    private readonly turnstile: Turnstile,
    shape: BoardShape,
    buffer: ArrayBufferLike,
  ) {
    super(shape, buffer)
  }

  override next(worker: number, last: number): number {
    this.turnstile.pass('meet')
    return super.next(worker, last)
  }
}

class GatedTeam extends Team {
  constructor(
    private readonly turnstile: Turnstile,
    index: number,
    { words, teamBase }: JobBoard,
  ) {
    super(index, words, teamBase)
  }

  override start(size: number): void {
    this.turnstile.pass('meet')
    super.start(size)
  }

  override barrier(): void {
    this.turnstile.pass('meet')
    super.barrier()
    this.turnstile.pass('meet')
  }
}

class GatedRing extends ReadRing {
  constructor(
    private readonly turnstile: Turnstile,
    buffer: ArrayBufferLike,
  ) {
    super(buffer)
  }

  override waitForAnswer(seen: number, timeoutMs: number): void {
    this.turnstile.pass('wait')
    super.waitForAnswer(seen, timeoutMs)
  }
}
