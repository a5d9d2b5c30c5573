// The protocol of the wasm backend's workers (docs/dev/workers.md) over all schedules: two and three workers and the main
// thread, jobs on changing numbers of workers, and an abort, a failed read, a close and a death at every point. Then the
// same with one thing taken away, which must be noticed: an explorer that finds nothing shows nothing.
import { describe, expect, test } from 'vitest'
import { JobBoard, WAVE } from '#moeflux/backends/wasm/workers/jobBoard.js'
import type { Words } from '#moeflux/backends/wasm/workers/sharedWords.js'
import { TEAM_WORDS, Team } from '#moeflux/backends/wasm/workers/team.js'
import { exploreBarrier, exploreWorkers, type Parts, type Plan } from '../../support/wasm/workerModel.js'

const plans: Plan[] = [
  { detail: 'waits', workers: 2, jobs: [2, 1], aborts: 1, failures: 1 },
  { detail: 'waits', workers: 2, jobs: [1, 2] },
  { detail: 'waits', workers: 2, jobs: [2, 2] },
  { detail: 'jobs', workers: 2, jobs: [2, 1, 2], waves: 2, aborts: 2, failures: 1 },
  { detail: 'jobs', workers: 2, jobs: [2, 1, 2], layers: 2, aborts: 1, closes: true },
  { detail: 'jobs', workers: 2, jobs: [2, 1, 2], aborts: 1, failures: 1, deaths: 1 },
  { detail: 'jobs', workers: 2, jobs: [2, 1], passes: 2, aborts: 1, failures: 1, deaths: 1 },
  { detail: 'jobs', workers: 3, jobs: [3, 1, 3], aborts: 1, failures: 1 },
  { detail: 'jobs', workers: 3, jobs: [3, 2, 3], aborts: 1 },
  { detail: 'jobs', workers: 3, jobs: [3, 3], waves: 2, failures: 1 },
  { detail: 'jobs', workers: 3, jobs: [3, 2], deaths: 1, aborts: 1 },
]

describe('all schedules of', () => {
  test.each(plans)('%j', plan => {
    const { violation, states } = exploreWorkers(plan)
    expect(violation).toBeNull()
    expect(states).toBeGreaterThan(1000)
  })

  test('three workers at a barrier, and two of them at one', () => {
    const { violation, states } = exploreBarrier()
    expect(violation).toBeNull()
    expect(states).toBeGreaterThan(1000)
  })
})

/** What a subclass needs that takes something away. */
interface TeamInside {
  readonly words: Words
  readonly base: number
}

describe('noticed:', () => {
  const found = (plan: Plan, parts: Partial<Parts>) => {
    const { violation } = exploreWorkers(plan, { Board: JobBoard, Team, ...parts })
    expect(violation).not.toBeNull()
    expect(violation?.trace.length).toBeGreaterThan(5)
    return violation?.message
  }

  // How it was: after an abandoned wave the leader told the main thread, while others had yet to read what the wave was.
  let kind = -1
  class BoardThatTellsKind extends JobBoard {
    override get waveKind(): number {
      kind = super.waveKind
      return kind
    }
  }
  class TeamThatLeavesAtOnce extends Team {
    override leave(): void {
      const { size } = this
      if (kind === WAVE.abandon) this.size = 1
      super.leave()
      this.size = size
    }
  }
  const old = { Board: BoardThatTellsKind, Team: TeamThatLeavesAtOnce }
  const aborted: Plan = { detail: 'jobs', workers: 2, jobs: [2, 1], aborts: 1 }

  test('workers that do not leave an abandoned job together', () => {
    expect(found(aborted, old)).toBe('job 2 is posted while worker 1 is in another')
    expect(found({ ...aborted, detail: 'waits' }, old)).toBe('job 2 is posted while worker 1 is in another')
  })

  test('the same, by the words that they read', () => {
    expect(found({ ...aborted, postsUnchecked: true }, old)).toMatch(/^a worker (in wave|does work)|different ends/)
    const three: Plan = { ...aborted, workers: 3, jobs: [3, 2], postsUnchecked: true }
    expect(found(three, old)).toMatch(/^a worker (in wave|does work)|different ends/)
  })

  test('an abort that outlives its job', () => {
    class BoardThatKeepsAborts extends JobBoard {
      override post(workers: number): void {
        const { aborted } = this
        super.post(workers)
        if (aborted) this.abort()
      }
    }
    expect(found({ ...aborted, jobs: [2, 2] }, { Board: BoardThatKeepsAborts })).toMatch(/abort/)
  })

  test('an abort that is forgotten', () => {
    class BoardThatDoesNotAbort extends JobBoard {
      override abort(): void {
        this.words.load(0)
      }
    }
    expect(found(aborted, { Board: BoardThatDoesNotAbort })).toMatch(/an abort is not seen/)
  })

  test('a job that is posted before it is written', () => {
    class BoardThatPostsEarly extends JobBoard {
      override writeRows(): void {}
      override post(workers: number): void {
        super.post(workers)
        super.writeRows(this.words.get(16) + 1, 0)
      }
    }
    expect(found(aborted, { Board: BoardThatPostsEarly })).toMatch(/reads the words of job/)
  })

  test('counters that are not cleared', () => {
    class TeamThatClearsNothing extends Team {
      override begin(): number {
        const { index } = this
        Object.assign(this, { index: index + 1 })
        const counter = super.begin()
        Object.assign(this, { index })
        return counter
      }
    }
    expect(found({ detail: 'jobs', workers: 2, jobs: [2, 2] }, { Team: TeamThatClearsNothing })).toMatch(/is not done/)
  })

  test('a phase that begins where the last job has not ended', () => {
    class TeamThatForgetsItsPhase extends Team {
      override start(size: number): void {
        super.start(size)
        Object.assign(this, { phase: 0 })
      }
    }
    const plan: Plan = { detail: 'jobs', workers: 2, jobs: [2, 2], aborts: 1 }
    expect(found(plan, { Team: TeamThatForgetsItsPhase })).toMatch(/is not done|is done twice/)
  })

  test('no barriers', () => {
    class TeamThatNeverMeets extends Team {
      override barrier(): void {}
    }
    expect(found({ detail: 'jobs', workers: 2, jobs: [2] }, { Team: TeamThatNeverMeets })).toMatch(
      /wave|not done|phases/,
    )
  })

  test('a barrier that looks for sleepers before it opens', () => {
    class TeamThatForgetsSleepers extends Team {
      protected override meet(): void {
        const { words, base } = this as unknown as TeamInside
        const generation = words.load(base + 1)
        if (words.add(base, 1) === this.size - 1) {
          words.store(base, 0)
          const sleepers = words.load(base + 2)
          words.add(base + 1, 1)
          if (sleepers > 0) words.notify(base + 1)
          return
        }
        words.add(base + 2, 1)
        while (words.load(base + 1) === generation) words.wait(base + 1, generation)
        words.add(base + 2, -1)
      }
    }
    expect(found({ detail: 'waits', workers: 2, jobs: [2] }, { Team: TeamThatForgetsSleepers })).toMatch(/^deadlock/)
    expect(exploreBarrier(TeamThatForgetsSleepers).violation?.message).toMatch(/^deadlock/)
  })

  test('a barrier that opens before it is set back', () => {
    class TeamThatOpensEarly extends Team {
      protected override meet(): void {
        const { words, base } = this as unknown as TeamInside
        const generation = words.load(base + 1)
        if (words.add(base, 1) === this.size - 1) {
          words.add(base + 1, 1)
          words.notify(base + 1)
          words.store(base, 0)
          return
        }
        while (words.load(base + 1) === generation) words.wait(base + 1, generation)
      }
    }
    expect(exploreBarrier(TeamThatOpensEarly).violation).not.toBeNull()
  })

  test('a worker that goes to sleep without a last look', () => {
    class BoardThatDozesOff extends JobBoard {
      protected override awaitBell(bell: number, last: number): void {
        if (this.words.load(bell) !== last) return
        this.words.store(bell + 1, 1)
        this.words.wait(bell + 1, 1)
        this.words.store(bell + 1, 0)
      }
    }
    expect(found({ detail: 'waits', workers: 2, jobs: [2] }, { Board: BoardThatDozesOff })).toMatch(/^deadlock/)
  })
})

test('a team stays within its ring of counters, however long it runs, and says when a barrier is missing', () => {
  const memory = new Map<number, number>()
  const words = {
    get: (at: number) => memory.get(at) ?? 0,
    set: (at: number, value: number) => void memory.set(at, value),
    store: (at: number, value: number) => void memory.set(at, value),
  } as Words
  const team = new Team(0, words, 0)
  for (let job = 0; job < 100; job++) {
    team.start(1)
    for (let phase = 0; phase < 7; phase++) expect(team.begin()).toBeLessThan(TEAM_WORDS)
    team.leave()
  }
  expect(words.get(3)).toBe((100 * 7) % 64) // not more from job to job: a word has 31 bits
  team.start(1)
  for (let phase = 0; phase < 32; phase++) team.begin()
  expect(() => team.begin()).toThrow('more than 32 phases without a barrier')
})
