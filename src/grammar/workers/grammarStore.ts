// The grammars that were drafted, by the text of their source, so that clients that send the same schema again and again wait
// for it once. Those used last stay, up to a bound of memory. Several who ask at once for what is not there share the
// work, which ends early only when all of them have left.
import { type Program, programBytes } from '../automaton/program.js'

const MAX_BYTES = 32 * 2 ** 20

/** A grammar in somebody's hands. */
export interface StoredGrammar {
  readonly id: number
  readonly program: Program
  release(): void
}

interface Entry {
  readonly id: number
  readonly program: Program
  readonly bytes: number
  users: number
}

interface Work {
  readonly entry: Promise<Entry>
  readonly stop: AbortController
  waiting: number
}

export class GrammarStore {
  private readonly entries = new Map<string, Entry>() // the one used last is the last
  private readonly running = new Map<string, Work>()
  private bytes = 0
  private nextId = 1

  /** `gone` hears of each grammar that is neither kept nor used any more. */
  constructor(private readonly gone: (id: number) => void) {}

  async take(
    source: string,
    signal: AbortSignal | undefined,
    draft: (signal: AbortSignal) => Promise<Program>,
  ): Promise<StoredGrammar> {
    signal?.throwIfAborted()
    const entry = this.entries.get(source) ?? (await this.join(source, signal, draft))
    entry.users++
    if (this.entries.delete(source)) this.entries.set(source, entry)
    let released = false
    const release = () => {
      if (released) return
      released = true
      entry.users--
      this.dismiss(source, entry)
    }
    return { id: entry.id, program: entry.program, release }
  }

  private async join(
    source: string,
    signal: AbortSignal | undefined,
    draft: (signal: AbortSignal) => Promise<Program>,
  ): Promise<Entry> {
    const work = this.running.get(source) ?? this.begin(source, draft)
    work.waiting++
    return await new Promise<Entry>((resolve, reject) => {
      const leave = () => {
        if (--work.waiting === 0) work.stop.abort(signal?.reason)
        reject(signal?.reason)
      }
      signal?.addEventListener('abort', leave, { once: true })
      work.entry.then(resolve, reject).finally(() => signal?.removeEventListener('abort', leave))
    })
  }

  private begin(source: string, draft: (signal: AbortSignal) => Promise<Program>): Work {
    const stop = new AbortController()
    const entry = draft(stop.signal)
      .then(program => this.add(source, program))
      .finally(() => this.running.delete(source))
    const work: Work = { entry, stop, waiting: 0 }
    this.running.set(source, work)
    // Whoever comes after all have left begins anew.
    stop.signal.addEventListener('abort', () => this.running.delete(source))
    return work
  }

  private add(source: string, program: Program): Entry {
    const entry: Entry = { id: this.nextId++, program, bytes: 2 * source.length + programBytes(program), users: 0 }
    this.entries.set(source, entry)
    this.bytes += entry.bytes
    for (const [oldest, old] of this.entries) {
      if (this.bytes <= MAX_BYTES || old === entry) break
      this.entries.delete(oldest)
      this.bytes -= old.bytes
      this.dismiss(oldest, old)
    }
    return entry
  }

  private dismiss(source: string, entry: Entry): void {
    if (entry.users === 0 && this.entries.get(source) !== entry) this.gone(entry.id)
  }
}
