// The memory that main thread and workers agree through, as words of 32 bits. All of their protocol goes through this one
// door, so that tests can put an explorer of schedules in its place. `get` and `set` are plain: they are for words that
// have one writer at a time and that nobody else touches in that phase. The others are atomic and in one order for all.

export interface Words {
  get(at: number): number
  set(at: number, value: number): void
  load(at: number): number
  store(at: number, value: number): void
  /** Returns what was there before. */
  add(at: number, value: number): number
  /** Sleeps if the word is `value`, until somebody calls `notify`. */
  wait(at: number, value: number): void
  notify(at: number): void
}

export class SharedWords implements Words {
  constructor(private readonly words: Int32Array) {}

  get(at: number): number {
    return this.words[at]
  }

  set(at: number, value: number): void {
    this.words[at] = value
  }

  load(at: number): number {
    return Atomics.load(this.words, at)
  }

  store(at: number, value: number): void {
    Atomics.store(this.words, at, value)
  }

  add(at: number, value: number): number {
    return Atomics.add(this.words, at, value)
  }

  wait(at: number, value: number): void {
    Atomics.wait(this.words, at, value)
  }

  notify(at: number): void {
    Atomics.notify(this.words, at)
  }
}
