// Main thread and workers of the wasm backend over an explorer of schedules: the engine's own board, team and course, with
// work in place of the math that can tell whether everything was done once, by the right job, in the right phase. Each
// word that is read is checked against what it should say to this reader now: a value of another job, layer or wave is
// an error, and so is a unit of work that is done twice or not at all, an abort that is lost or hits another job, a worker
// that comes to another end than the others, and a job that is posted while somebody is still in the one before.
import { JobBoard, WAVE } from '#moeflux/backends/wasm/workers/jobBoard.js'
import type { BoardShape } from '#moeflux/backends/wasm/workers/jobLayout.js'
import { type LayerRange, type Share, serveJobs } from '#moeflux/backends/wasm/workers/jobRunner.js'
import { ARRIVED, GENERATION, Team } from '#moeflux/backends/wasm/workers/team.js'
import { DIED, type Exploration, type Notes, ScheduleExplorer } from './scheduleExplorer.js'

export interface Plan {
  /** waits: to the last access, with little work. jobs: waiting at a barrier or for a job is one step. */
  readonly detail: 'waits' | 'jobs'
  readonly workers: number
  readonly jobs: readonly number[] // how many workers each is posted to
  readonly layers?: number // 1
  readonly waves?: number // per layer; 1
  readonly passes?: number // through the layers; 1
  readonly aborts?: number // jobs that may be aborted, at any point
  readonly failures?: number // waves whose reads may fail
  readonly deaths?: number // workers that may die, at any point
  readonly closes?: boolean // the model may be closed, at any point of a job
  /** Leave it to the words that are read whether a job was posted too early. */
  readonly postsUnchecked?: boolean
}

/** The parts of the protocol, so that a test can take something away from them. */
export interface Parts {
  readonly Board: typeof JobBoard
  readonly Team: typeof Team
}

const RING = 4 // so that few phases come round it
const PHASES = 16 // of a job, at most
const MOST_STATES = 3_000_000

const MESSAGE = { done: 0, aborted: 1, failed: 2, ended: 3 } as const
const ABORT = -2
const CLOSE = -3

/** Threads that meet again and again, some of them only when others have met without them, to the last access. */
export function exploreBarrier(TeamPart: typeof Team = Team): Exploration {
  const explorer = new ScheduleExplorer({ deaths: 0, states: MOST_STATES })
  const base = 0
  const called = 10_000 // a word: the third may come again
  const meet = (team: Team, size: number, round: number) => {
    team.start(size)
    explorer.note(notes => notes.set(`come ${round}`, notes.get(`come ${round}`) + 1))
    explorer.scope(() => {
      team.barrier()
      return 0
    })
    explorer.note(notes =>
      check(notes.get(`come ${round}`) === size, `barrier ${round} is passed before all have come`),
    )
  }
  for (let index = 0; index < 3; index++) {
    const team = new TeamPart(index, explorer.words, base, { ring: RING, spins: 0 })
    explorer.addThread(`worker ${index}`, () => {
      meet(team, 3, 0)
      meet(team, 3, 1)
      if (index < 2) meet(team, 2, 2)
      if (index === 0) explorer.words.store(called, 1)
      if (index === 2) explorer.until(called, 0)
      meet(team, 3, 3)
      explorer.send(MESSAGE.ended)
      if (index === 0) for (let ended = 0; ended < 3; ended++) explorer.receive(0)
    })
  }
  return explorer.explore()
}

export function exploreWorkers(plan: Plan, { Board, Team: TeamPart }: Parts = { Board: JobBoard, Team }): Exploration {
  const explorer = new ScheduleExplorer({ deaths: plan.deaths ?? 0, states: MOST_STATES })
  const { workers, layers = 1 } = plan
  const shape: BoardShape = {
    threads: workers,
    chunkTokens: 1,
    layers,
    fullLayers: 0,
    moeLayers: layers,
    experts: 1,
    headRows: 1,
  }
  const board = new Board(shape, undefined, explorer.words, 0)
  explorer.addThread('main', from => new MainThread(explorer, board, plan).run(from), false)

  class WatchedBoard extends Board {
    job = 0 // that this worker was given

    /** How a worker waited for its job does not matter later, nor what it did before. */
    override next(worker: number, last: number): number {
      explorer.restart(last)
      this.job = explorer.scope(() => super.next(worker, last))
      return this.job
    }

    protected override awaitBell(bell: number, last: number): void {
      if (plan.detail === 'waits') super.awaitBell(bell, last)
      else explorer.until(bell, last)
    }
  }

  /** Nor does it matter who did which unit, and how a barrier was passed. */
  class WatchedTeam extends TeamPart {
    protected override shareOut(...work: [number, number, number, (start: number, end: number) => void]): void {
      explorer.scope(() => {
        super.shareOut(...work)
        return 0
      })
    }

    protected override meet(): void {
      explorer.scope(() => {
        if (plan.detail === 'waits') super.meet()
        else explorer.meet(board.teamBase + ARRIVED, board.teamBase + GENERATION, this.size)
        return 0
      })
    }

    override leave(): void {
      explorer.note(notes => notes.set(`left by ${this.index}`, notes.get('job')))
      super.leave()
    }
  }

  for (let index = 0; index < workers; index++) {
    const own = new WatchedBoard(shape, undefined, explorer.words, 0)
    const team = new WatchedTeam(index, explorer.words, own.teamBase, { ring: RING, spins: 0 })
    const share = new CheckedShare(explorer, own, team, plan)
    explorer.addThread(`worker ${index}`, from => {
      serveJobs(own, team, share, from)
      explorer.send(MESSAGE.ended)
    })
  }
  return explorer.explore()
}

/** Units of work in a phase. */
function unitsOf({ detail }: Plan): number {
  return detail === 'waits' ? 1 : 2
}

function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message)
}

/** Words past the board's. */
function wordsBeside(board: JobBoard) {
  const slot = Math.ceil(board.size / 4)
  return { slot, results: slot + 1 }
}

/** Does what the pool of workers does: posts, asks to abort, hears the end, and ends everybody when one has died. */
class MainThread {
  constructor(
    private readonly explorer: ScheduleExplorer,
    private readonly board: JobBoard,
    private readonly plan: Plan,
  ) {}

  run(from: number): void {
    const { explorer, board, plan } = this
    for (let i = from; i < plan.jobs.length; i++) {
      explorer.restart(i)
      this.post(i + 1)
      const end = this.awaitEnd(i + 1)
      if (end === 'lost') return
      if (end === 'closed') break
    }
    explorer.restart(plan.jobs.length)
    board.stop()
    for (let ended = 0; ended < plan.workers; ended++) {
      if (explorer.receive(0) !== DIED) continue
      explorer.endOthers()
      return
    }
  }

  private post(job: number): void {
    const { explorer, board, plan } = this
    explorer.note(notes => {
      const before = plan.postsUnchecked ? 0 : (plan.jobs[job - 2] ?? 0)
      for (let worker = 0; worker < before; worker++) {
        check(notes.get(`left by ${worker}`) === job - 1, `job ${job} is posted while worker ${worker} is in another`)
      }
      notes.set('job', job)
      notes.set('abort of', 0)
      notes.set('failure of', 0)
      for (let phase = 0; phase < PHASES; phase++) notes.set(`phase ${phase}`, 0)
    })
    const { layers = 1 } = plan
    board.writeParts({ embed: false, firstLayer: 0, endLayer: layers, headRows: [], argmax: false, probe: false })
    board.writeRows(job, 0)
    board.post(plan.jobs[job - 1])
  }

  private awaitEnd(job: number): 'over' | 'closed' | 'lost' {
    const { explorer, board, plan } = this
    let options = explorer.note(notes => ((plan.aborts ?? 0) > notes.get('aborts') ? (plan.closes ? 2 : 1) : 0))
    let isClosing = false
    for (;;) {
      const event = explorer.receive(options)
      if (event === DIED) {
        explorer.endOthers()
        return 'lost'
      }
      if (event === ABORT || event === CLOSE) {
        options = 0
        isClosing = event === CLOSE
        board.abort()
        explorer.note(notes => {
          notes.set('aborts', notes.get('aborts') + 1)
          notes.set('abort of', job)
        })
        continue
      }
      this.checkEnd(job, event)
      return isClosing ? 'closed' : 'over'
    }
  }

  private checkEnd(job: number, event: number): void {
    const { explorer, board, plan } = this
    explorer.note(notes => {
      if (event === MESSAGE.aborted)
        check(notes.get('abort of') === job, `job ${job} is aborted, and nobody asked for it`)
      if (event === MESSAGE.failed) check(notes.get('failure of') === job, `job ${job} failed, and no read did`)
    })
    if (event !== MESSAGE.done) return
    for (let unit = 0; unit < unitsOf(plan); unit++) {
      const result = explorer.words.get(wordsBeside(board).results + unit)
      check(result === job, `the result of job ${job} is of job ${result}`)
    }
  }
}

/** Work that knows what it should find. Its own fields hold within a job only. */
class CheckedShare implements Share {
  private layer = 0
  private waveIndex = 0 // in the layer
  private pass = 0 // of the job
  private phases = 0
  private checked = 0 // phases known to be done
  private failed = false
  private readonly slot: number
  private readonly results: number

  constructor(
    private readonly explorer: ScheduleExplorer,
    private readonly board: JobBoard & { readonly job: number },
    private readonly team: Team,
    private readonly plan: Plan,
  ) {
    const { slot, results } = wordsBeside(board)
    this.slot = slot
    this.results = results
  }

  begin(): LayerRange {
    const { board } = this
    this.phases = 0
    this.checked = 0
    this.waveIndex = 0
    this.pass = 0
    this.failed = false
    const { firstLayer, endLayer, rows } = board
    check(rows === board.job, `a worker of job ${board.job} reads the words of job ${rows}`)
    this.work()
    this.team.barrier()
    this.checkWork()
    return { firstLayer, endLayer }
  }

  mix(layer: number): void {
    this.layer = layer
    this.waveIndex = 0
    this.work()
  }

  nextWave(): void {
    const { board, explorer } = this
    const { waves = 1 } = this.plan
    const isAborted = board.aborted
    explorer.note(notes => {
      const wasAsked = notes.get('abort of') === board.job
      check(isAborted === wasAsked, `job ${board.job}: an abort ${isAborted ? 'of another job' : 'is not seen'}`)
    })
    if (isAborted || this.readFails()) {
      board.setWave(WAVE.abandon, this.tag)
      return
    }
    explorer.words.set(this.slot, this.tag) // an expert is read to where the one before was
    board.setWave(this.waveIndex === waves - 1 ? WAVE.lastExperts : WAVE.experts, this.tag)
  }

  private readFails(): boolean {
    const { explorer, plan, board } = this
    const options = explorer.note(notes => ((plan.failures ?? 0) > notes.get('failures') ? 2 : 1))
    this.failed = explorer.choose(options) === 1
    if (this.failed) {
      explorer.note(notes => {
        notes.set('failures', notes.get('failures') + 1)
        notes.set('failure of', board.job)
      })
    }
    return this.failed
  }

  wave(isLast: boolean): void {
    const { waves = 1 } = this.plan
    check(
      isLast === (this.waveIndex === waves - 1),
      `wave ${this.waveIndex} of job ${this.board.job} takes another for its own`,
    )
    const found = this.board.waveCount
    check(found === this.tag, `a worker in wave ${this.tag} reads wave ${found}`)
    this.checkWork()
    this.work()
    const expert = this.explorer.words.get(this.slot)
    check(expert === this.tag, `a worker in wave ${this.tag} computes with the expert of wave ${expert}`)
    if (isLast) {
      this.team.barrier()
      this.checkWork()
    }
    this.waveIndex++
  }

  endLayer(): void {}

  head(): void {
    this.work(unit => this.explorer.words.set(this.results + unit, this.board.job))
  }

  /** What the leader found at the end of a pass is what all begin the next one with. */
  goesOn(): boolean {
    const { board, team, pass } = this
    if (pass + 1 >= (this.plan.passes ?? 1)) return false
    team.barrier()
    this.checkWork()
    if (team.isLeader) board.setArgmax(0, this.tag, pass)
    team.barrier()
    const found = board.argmaxOf(0, pass)
    check(found === this.tag, `a worker goes on from ${this.tag} with what was found at ${found}`)
    this.pass++
    return true
  }

  conclude(isFinished: boolean): void {
    const { board, team, explorer } = this
    const end = isFinished ? MESSAGE.done : this.failed ? MESSAGE.failed : MESSAGE.aborted
    explorer.note(notes => {
      const name = `end of ${board.job}`
      const own = isFinished ? 1 : 2
      check([0, own].includes(notes.get(name)), `workers of job ${board.job} come to different ends`)
      notes.set(name, own)
    })
    if (!team.isLeader) return
    if (isFinished) this.checkWork()
    explorer.send(end)
  }

  /** Tells this wave of this job from all others. */
  private get tag(): number {
    return (this.board.job * 10 + this.pass * 5 + this.layer) * 10 + this.waveIndex
  }

  /** A phase whose units all workers share. */
  private work(also: (unit: number) => void = () => {}): void {
    const { explorer, team } = this
    const phase = this.phases++
    team.ranges(unitsOf(this.plan), 1, (begin, end) => {
      for (let unit = begin; unit < end; unit++) {
        also(unit)
        explorer.note(notes => this.count(notes, phase, unit))
      }
    })
  }

  private count(notes: Notes, phase: number, unit: number): void {
    const { job } = this.board
    const name = `phase ${phase}`
    const done = notes.get(name)
    check(notes.get('job') === job, `a worker does work of job ${job} when that is over`)
    check((done & (1 << unit)) === 0, `unit ${unit} of phase ${phase} of job ${job} is done twice`)
    notes.set(name, done | (1 << unit))
  }

  /** After a barrier: everything before it was done. */
  private checkWork(): void {
    const { job } = this.board
    const first = this.checked
    const end = this.phases
    this.checked = end
    const all = 2 ** unitsOf(this.plan) - 1
    this.explorer.note(notes => {
      for (let phase = first; phase < end; phase++) {
        check(notes.get(`phase ${phase}`) === all, `phase ${phase} of job ${job} is not done`)
      }
    })
  }
}
