// What is known of a model, in a line: its size, how it fits this machine, and the speed to expect.
import type { ModelAbout } from '../engines/hubClient.js'
import * as format from '../ui/format.js'

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
