// A bad disk for tests: shared words that make reads fail, come up short or take long, while a model is open. Without
// the words no reader knows that this exists.
import type { ReadBytes } from './readerLoop.js'

export type FaultKind = 'none' | 'error' | 'short' | 'end'
const kinds: readonly FaultKind[] = ['none', 'error', 'short', 'end']

/** The tester's side. */
export class ReadFaults {
  readonly buffer = new SharedArrayBuffer(16)
  private readonly words = new Int32Array(this.buffer) // kind, file (-1: all), reads left (-1: all), delay in ms

  /** error: EIO. short: half of what was asked for, then nothing. end: as if the file ended before the read. */
  set(kind: FaultKind, options: { file?: number; reads?: number; delayMs?: number } = {}): void {
    Atomics.store(this.words, 1, options.file ?? -1)
    Atomics.store(this.words, 2, options.reads ?? -1)
    Atomics.store(this.words, 3, options.delayMs ?? 0)
    Atomics.store(this.words, 0, kinds.indexOf(kind))
  }
}

/** The reader's side. */
export function withFaults(read: ReadBytes, buffer: SharedArrayBuffer): ReadBytes {
  const words = new Int32Array(buffer)
  return (file, target, position) => {
    const delayMs = Atomics.load(words, 3)
    if (delayMs > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, delayMs)
    switch (faultFor(words, file)) {
      case 'error':
        throw Object.assign(new Error('EIO: injected'), { code: 'EIO' })
      case 'short':
        return target.length > 1 && position % 2 === 0
          ? read(file, target.subarray(0, (target.length >> 1) | 1), position)
          : 0
      case 'end':
        return 0
      default:
        return read(file, target, position)
    }
  }
}

function faultFor(words: Int32Array, file: number): FaultKind {
  const kind = kinds[Atomics.load(words, 0)]
  const only = Atomics.load(words, 1)
  if (kind === 'none' || (only >= 0 && only !== file)) return 'none'
  if (Atomics.load(words, 2) < 0) return kind
  return Atomics.sub(words, 2, 1) > 0 ? kind : 'none'
}
