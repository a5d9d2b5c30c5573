// What is known of a model, in a line: its size, how it fits this machine, and the speed to expect.
import type { ModelAbout } from '../engines/hubClient.js'
import * as format from '../ui/format.js'

/** Null where the disk of the server has room, or does not tell. */
export function diskLack(diskBytes: number, freeDisk: number | null): string | null {
  if (freeDisk === null || freeDisk >= diskBytes) return null
  const [want, got] = [format.bytes(diskBytes), format.bytes(freeDisk)]
  const rest = want === got ? `${format.bytes(diskBytes - freeDisk)} more than are free` : `${got} are free`
  return `needs ${want} of disk, ${rest}`
}

export function modelFacts(about: ModelAbout, isLoaded = false): string {
  const { bytes, fits, tokensPerSecond, leastMemory } = about
  const speed = tokensPerSecond === null ? null : `up to ${format.speed(tokensPerSecond)}`
  const words = {
    everything: ['fits in memory', speed],
    streaming: ['streams experts from disk', speed],
    no: [`needs ${format.bytes(leastMemory ?? 0)} of free memory`],
  }
  // Of one that is there, what would fit is no news; and the memory that it has taken is no longer free.
  const fit = fits === null || isLoaded ? [] : words[fits]
  return [bytes === null ? null : format.bytes(bytes), ...fit].filter(part => part !== null).join(' · ')
}
