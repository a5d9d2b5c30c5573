// A disk that fails as told, for backends that read experts from byte sources: what ReadFaults is for reader threads. Hits
// reads by their position in the order in which they begin, not by time.
import { ReadError } from '#moeflux/base/errors.js'
import type { FaultKind, ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { CheckedSource } from '#moeflux/files/packed/checkedSource.js'
import type { ExpertFiles } from '#moeflux/files/packed/packedModel.js'
import type { ByteSource } from '#moeflux/files/source.js'

export type BadDisk = Pick<ReadFaults, 'set' | 'pick' | 'pickAndHold' | 'letGo' | 'isMet' | 'isWaiting'>

interface Place {
  readonly source: ByteSource
  readonly offset: number
}

export class SourceFaults implements BadDisk {
  private kind: FaultKind = 'none'
  private skip = -1 // reads that pass before one is picked; -1: all are hit
  private tries = -1 // that are hit; -1: all
  private picked: Place | null = null
  private shut: Promise<void> | null = null
  private waiting = false
  letGo: () => void = () => {}

  set(kind: FaultKind): void {
    this.begin(kind, -1, -1, false)
  }

  pick(kind: FaultKind, skip: number, tries = -1): void {
    this.begin(kind, skip, tries, false)
  }

  pickAndHold(skip: number, kind: FaultKind = 'none', tries = -1): void {
    this.begin(kind, skip, tries, true)
  }

  get isMet(): boolean {
    return this.picked !== null
  }

  get isWaiting(): boolean {
    return this.waiting
  }

  private wrap(source: ByteSource): ByteSource {
    return {
      name: `bad ${source.name}`, // no path: reader threads would open it themselves
      size: source.size,
      close: () => source.close(),
      read: async (offset, target, signal) => {
        const kind = await this.faultFor({ source, offset })
        if (kind === 'none') return source.read(offset, target, signal)
        if (kind === 'flip') {
          await source.read(offset, target, signal)
          target[target.length >> 1] ^= 1
          return
        }
        if (kind === 'short') await source.read(offset, target.subarray(0, target.length >> 1))
        throw new ReadError(source.name, offset, target.length, kind === 'error' ? 'EIO: injected' : 'cut short')
      },
    }
  }

  /** What comes of the disk is compared with checksums, as opened folders have it. */
  wrapExperts(experts: ExpertFiles): ExpertFiles {
    const { checksums } = experts
    if (checksums === null) throw new Error('the model has no checksums')
    return { ...experts, files: experts.files.map((file, i) => new CheckedSource(this.wrap(file), checksums, i)) }
  }

  private begin(kind: FaultKind, skip: number, tries: number, holds: boolean): void {
    this.letGo()
    this.kind = kind
    this.skip = skip
    this.tries = tries
    this.picked = null
    this.shut = holds
      ? new Promise(resolve => {
          this.letGo = () => {
            this.shut = null
            resolve()
          }
        })
      : null
  }

  private async faultFor(place: Place): Promise<FaultKind> {
    if (this.picked === null) {
      if (this.skip < 0) return this.kind
      if (this.skip-- > 0) return 'none'
      this.picked = place
    } else if (this.picked.source !== place.source || this.picked.offset !== place.offset) return 'none'
    if (this.shut !== null) {
      this.waiting = true
      await this.shut
      this.waiting = false
    }
    if (this.tries === 0) return 'none'
    if (this.tries > 0) this.tries--
    return this.kind
  }
}
