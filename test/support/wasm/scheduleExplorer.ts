// Runs threads that share memory through all schedules there are, in one thread and without chance. A thread is ordinary
// code over `Words`: it is run until its next access, put aside there, and later run again from its start with the answers
// that it got before, up to that place. A state is what the memory holds and what each thread has been told; states that
// were seen are not gone into again, so what is explored is finite, and all of it.
//
// An atomic access is one step; plain ones in a row are one step, since whatever could be seen between them can also be
// seen before or after. `wait` sleeps and is woken as a futex is, so a wake-up that gets lost is a deadlock here.
import type { Words } from '#moeflux/backends/wasm/workers/sharedWords.js'

/** Runs from its start, or from where it last called `restart`, with the value that it gave there. */
export type Body = (from: number) => void

export interface ThreadPlan {
  readonly name: string
  readonly body: Body
  readonly mayDie: boolean
}

export interface Exploration {
  readonly states: number
  readonly steps: number
  /** What went wrong, and the steps that led there; null where nothing did. */
  readonly violation: { readonly message: string; readonly trace: readonly string[] } | null
}

export interface Limits {
  readonly deaths: number // threads that may end in the middle, in one run
  readonly states: number // more are a mistake of the test
}

type WordKind = 'get' | 'set' | 'load' | 'store' | 'add' | 'wait' | 'notify' | 'until'
type Kind = WordKind | 'arrive' | 'choose' | 'send' | 'receive' | 'endOthers'

interface Access {
  readonly kind: Kind
  readonly at: number
  readonly value: number
}

const OPEN = 1_000_003 // in a log: a scope that has not ended
const ENDED = 2_000_003 // and, added to its result, one that has
const AWAKE = -1
const OVER = -2
const DEAD = -3
const pause = { reason: 'a thread has come to its next access' }

/** Told to the receiver when a thread dies; other messages are not negative. */
export const DIED = -1

/** Shared between states, and copied by whoever changes it; so is mail. */
interface ThreadState {
  from: number
  log: number[] // answers since `from`
  status: number // AWAKE, OVER, DEAD, or the word that it sleeps on
  next: Access | null
  hash: Hash | null // where known
}

interface State {
  memory: number[]
  notes: number[]
  mail: number[][] // by sender
  deaths: number
  threads: ThreadState[]
}

/** A thread takes its next step; `choice` says which, where there are several, or that it dies. */
interface Move {
  readonly index: number
  readonly choice: number
}

interface Node {
  readonly state: State
  readonly parent: Node | null
  readonly move: Move | null // that led here
}

/** The one thread that runs now. */
interface Running {
  readonly state: State
  readonly index: number
  readonly log: number[]
  position: number
  mayAccess: 'one' | 'plain' | 'none'
  choice: number
  readonly woken: number[]
}

export class ScheduleExplorer {
  readonly words: Words = {
    get: at => this.access('get', at, 0),
    set: (at, value) => void this.access('set', at, value),
    load: at => this.access('load', at, 0),
    store: (at, value) => void this.access('store', at, value),
    add: (at, value) => this.access('add', at, value),
    wait: (at, value) => void this.access('wait', at, value),
    notify: at => void this.access('notify', at, 0),
  }
  private readonly plans: ThreadPlan[] = []
  private readonly wordIndex = new Map<number, number>() // the few that are used, in order of first use
  private readonly noteIndex = new Map<string, number>()
  private running: Running | null = null

  constructor(private readonly limits: Limits) {}

  addThread(name: string, body: Body, mayDie = true): void {
    this.plans.push({ name, body, mayDie })
  }

  // --- what threads call beside `words` --------------------------------------------------------------------------------

  /** Work whose result is all that counts of it later: how it came about does not tell states apart. */
  scope(work: () => number): number {
    const running = this.current()
    const { log } = running
    const start = running.position
    if (start < log.length && log[start] !== OPEN) {
      running.position++
      return log[start] - ENDED
    }
    if (start === log.length) log.push(OPEN)
    running.position++
    const result = work()
    log.length = start
    log.push(ENDED + result)
    running.position = start + 1
    return result
  }

  /** What comes now depends on `from` alone. */
  restart(from: number): void {
    const running = this.current()
    const thread = running.state.threads[running.index]
    if (running.position === 0 && thread.from === from) return
    thread.from = from
    running.log.length = 0
    running.position = 0
  }

  /** One of 0 … count - 1: all of them are gone into. */
  choose(count: number): number {
    return count === 1 ? 0 : this.access('choose', 0, count)
  }

  send(message: number): void {
    this.access('send', 0, message)
  }

  /** Waits for a message, DIED, or comes back with -2 - i of its own accord, for each i below `others`. */
  receive(others: number): number {
    return this.access('receive', 0, others)
  }

  /** Waits for the word to be something else, however: for those who explore what is built on waiting. */
  until(at: number, value: number): void {
    this.access('until', at, value)
  }

  /**
   * A barrier of `size` threads over two words, in one step to come to it and one to leave it: the same for
   * barriers.
   */
  meet(arrived: number, generation: number, size: number): void {
    const seen = this.access('arrive', arrived, generation * 16 + size)
    if (seen >= 0) this.until(generation, seen)
  }

  /** No other thread runs any more. */
  endOthers(): void {
    this.access('endOthers', 0, 0)
  }

  /** Keeps book for the test, together with the access before; returns the number that `work` did, if any. */
  note(work: (notes: Notes) => unknown): number {
    const running = this.current()
    if (running.position === running.log.length) {
      const result = work(new Notes(running.state.notes, this.noteIndex))
      running.log.push(typeof result === 'number' ? result : 0)
    }
    return running.log[running.position++]
  }

  // --- exploring -------------------------------------------------------------------------------------------------------

  explore(): Exploration {
    const seen = new StateSet()
    const stack: Node[] = []
    let steps = 0
    const report = (error: unknown, node: Node | null, last?: Move): Exploration => {
      const trace = last && node ? [this.label(node.state, last)] : []
      for (let at = node; at?.parent; at = at.parent) trace.unshift(this.label(at.parent.state, at.move as Move))
      const message = error instanceof Error ? error.message : String(error)
      return { states: seen.size, steps, violation: { message, trace } }
    }
    const first: State = {
      memory: [],
      notes: [],
      mail: this.plans.map(() => []),
      deaths: 0,
      threads: this.plans.map(() => ({ from: 0, log: [], status: AWAKE, next: null, hash: null })),
    }
    try {
      for (let index = 0; index < this.plans.length; index++) this.run(first, index, 'none', 0)
    } catch (error) {
      return report(error, null)
    }
    seen.add(hashOf(first))
    stack.push({ state: first, parent: null, move: null })
    for (let node = stack.pop(); node; node = stack.pop()) {
      const { state } = node
      const moves = this.movesOf(state)
      if (moves.length === 0 && state.threads[0].status !== OVER) {
        return report(new Error(`deadlock: ${this.describe(state)}`), node)
      }
      for (const move of moves) {
        steps++
        const next = copy(state)
        try {
          if (move.choice === DIED) this.die(next, move.index)
          else this.run(next, move.index, 'one', move.choice)
        } catch (error) {
          return report(error, node, move)
        }
        if (!seen.add(hashOf(next))) continue
        if (seen.size > this.limits.states)
          return report(new Error(`more than ${this.limits.states} states`), node, move)
        stack.push({ state: next, parent: node, move })
      }
    }
    return { states: seen.size, steps, violation: null }
  }

  private movesOf(state: State): Move[] {
    const moves: Move[] = []
    if (state.threads[0].status === OVER) return moves
    // What a thread chooses for itself, nobody else can see or stop: no need to do it at any other time than now.
    const chooser = state.threads.findIndex(({ status, next }) => status === AWAKE && next?.kind === 'choose')
    if (chooser >= 0) {
      const count = (state.threads[chooser].next as Access).value
      return Array.from({ length: count }, (_, choice) => ({ index: chooser, choice }))
    }
    state.threads.forEach(({ status, next }, index) => {
      if (status === OVER || status === DEAD) return
      if (this.plans[index].mayDie && state.deaths < this.limits.deaths) moves.push({ index, choice: DIED })
      if (status !== AWAKE || next === null) return
      if (next.kind === 'receive') {
        for (let other = 0; other < next.value; other++) moves.push({ index, choice: -2 - other })
        state.mail.forEach((mail, sender) => {
          if (mail.length > 0) moves.push({ index, choice: sender })
        })
      } else if (next.kind !== 'until' || this.wordOf(state, next.at) !== next.value) moves.push({ index, choice: 0 })
    })
    return moves
  }

  private wordOf(state: State, at: number): number {
    return state.memory[indexOf(this.wordIndex, at)] ?? 0
  }

  private die(state: State, index: number): void {
    change(state, index).status = DEAD
    state.deaths++
    state.mail[index] = [...state.mail[index], DIED]
  }

  /** Runs a thread up to an access after the one that it may do now, and whoever it has woken up to theirs. */
  private run(state: State, index: number, mayAccess: Running['mayAccess'], choice: number): void {
    const thread = change(state, index)
    const running: Running = { state, index, log: thread.log, position: 0, mayAccess, choice, woken: [] }
    const before = this.running
    this.running = running
    thread.next = null
    try {
      this.plans[index].body(thread.from)
      thread.status = OVER
    } catch (error) {
      if (error !== pause) throw error
    } finally {
      this.running = before
    }
    for (const sleeper of running.woken) {
      const thread = change(state, sleeper)
      thread.status = AWAKE
      thread.log.push(0)
      this.run(state, sleeper, 'none', 0)
    }
  }

  private current(): Running {
    if (this.running === null) throw new Error('not within a thread')
    return this.running
  }

  private access(kind: Kind, at: number, value: number): number {
    const running = this.current()
    const { log } = running
    if (running.position < log.length) return log[running.position++]
    const isPlain = kind === 'get' || kind === 'set'
    if (running.mayAccess === 'none' || (running.mayAccess === 'plain' && !isPlain)) {
      running.state.threads[running.index].next = { kind, at, value }
      throw pause
    }
    running.mayAccess = isPlain ? 'plain' : 'none'
    const result = this.perform(running, kind, at, value)
    log.push(result)
    running.position++
    return result
  }

  private perform({ state, index, choice, woken }: Running, kind: Kind, at: number, value: number): number {
    const { threads, mail } = state
    switch (kind) {
      case 'choose':
        return choice
      case 'send':
        mail[index] = [...mail[index], value]
        return 0
      case 'receive': {
        if (choice < 0) return choice
        const [letter, ...rest] = mail[choice]
        mail[choice] = rest
        return letter
      }
      case 'endOthers':
        threads.forEach((thread, i) => {
          if (i !== index && thread.status !== OVER) change(state, i).status = DEAD
        })
        return 0
      case 'arrive': {
        const [generation, size] = [value >> 4, value & 15]
        const arrived = this.wordOf(state, at) + 1
        const seen = this.wordOf(state, generation)
        this.setWord(state, at, arrived === size ? 0 : arrived)
        if (arrived < size) return seen
        this.setWord(state, generation, seen + 1)
        return -1
      }
      case 'notify':
        threads.forEach((thread, i) => {
          if (thread.status === at) woken.push(i)
        })
        return 0
    }
    const old = this.wordOf(state, at)
    if (kind === 'wait') {
      if (old !== value) return 0
      threads[index].status = at
      throw pause
    }
    if (kind === 'store' || kind === 'set') this.setWord(state, at, value)
    if (kind === 'add') this.setWord(state, at, (old + value) | 0)
    return kind === 'store' || kind === 'set' ? 0 : old
  }

  private setWord({ memory }: State, at: number, value: number): void {
    const word = indexOf(this.wordIndex, at)
    while (memory.length <= word) memory.push(0)
    memory[word] = value
  }

  private label(state: State, { index, choice }: Move): string {
    const { name } = this.plans[index]
    if (choice === DIED) return `${name} dies`
    const { kind, at, value } = state.threads[index].next as Access
    return `${name}: ${kind} ${kind === 'choose' || kind === 'receive' ? choice : `${at} ${value}`}`
  }

  private describe({ threads }: State): string {
    return threads
      .map(({ status, next }, i) => {
        const where = status === AWAKE ? `at ${next?.kind} ${next?.at}` : `asleep on ${status}`
        return `${this.plans[i].name} ${status === OVER ? 'over' : status === DEAD ? 'dead' : where}`
      })
      .join(', ')
  }
}

/** Numbers by name, part of the state. */
export class Notes {
  constructor(
    private readonly values: number[],
    private readonly index: Map<string, number>,
  ) {}

  get(name: string): number {
    return this.values[indexOf(this.index, name)] ?? 0
  }

  set(name: string, value: number): void {
    const at = indexOf(this.index, name)
    while (this.values.length <= at) this.values.push(0)
    this.values[at] = value
  }
}

function indexOf<T>(index: Map<T, number>, key: T): number {
  const known = index.get(key)
  if (known !== undefined) return known
  index.set(key, index.size)
  return index.size - 1
}

function copy({ memory, notes, mail, deaths, threads }: State): State {
  return { memory: memory.slice(), notes: notes.slice(), mail: mail.slice(), deaths, threads: threads.slice() }
}

/** A thread of a state, for changing it there and in no other. */
function change({ threads }: State, index: number): ThreadState {
  const { from, log, status, next } = threads[index]
  threads[index] = { from, log: log.slice(), status, next, hash: null }
  return threads[index]
}

function hashOf({ memory, notes, mail, deaths, threads }: State): Hash {
  const hash = new Hash()
  hash.add(deaths)
  hash.addAll(memory)
  hash.addAll(notes)
  for (const letters of mail) hash.addAll(letters)
  for (const thread of threads) {
    thread.hash ??= new Hash().add(thread.from).add(thread.status).addAll(thread.log)
    hash.add(thread.hash.first).add(thread.hash.second)
  }
  return hash
}

/** 64 bits: a million states collide once in thirty million explorations. */
class Hash {
  first = 0x811c9dc5 | 0
  second = 0x9e3779b9 | 0

  add(value: number): this {
    this.first = Math.imul(this.first ^ value, 0x01000193)
    this.first ^= this.first >>> 15
    this.second = (Math.imul((this.second << 13) | (this.second >>> 19), 0x85ebca6b) + value) | 0
    this.second ^= this.second >>> 16
    return this
  }

  addAll(values: readonly number[]): this {
    for (let i = 0; i < values.length; i++) this.add(values[i])
    return this.add(OPEN)
  }
}

class StateSet {
  size = 0
  private table = new Int32Array(2 ** 17) // two words each; 0, 0 marks an empty place

  /** False where it was there already. */
  add({ first, second }: Hash): boolean {
    if (this.size * 4 > this.table.length) this.grow()
    if (!this.insert(first, first === 0 && second === 0 ? 1 : second)) return false
    this.size++
    return true
  }

  private insert(first: number, second: number): boolean {
    const mask = this.table.length / 2 - 1
    for (let place = first & mask; ; place = (place + 1) & mask) {
      const a = this.table[place * 2]
      const b = this.table[place * 2 + 1]
      if (a === 0 && b === 0) {
        this.table[place * 2] = first
        this.table[place * 2 + 1] = second
        return true
      }
      if (a === first && b === second) return false
    }
  }

  private grow(): void {
    const old = this.table
    this.table = new Int32Array(old.length * 2)
    for (let i = 0; i < old.length; i += 2) if (old[i] !== 0 || old[i + 1] !== 0) this.insert(old[i], old[i + 1])
  }
}
