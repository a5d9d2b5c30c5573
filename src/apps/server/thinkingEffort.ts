// How much thinking a client asks for by a word, as the APIs spell it.
import type { ChatOptions } from '../../index.js'

/** Words that no template knows mean thinking, whichever they are; those for none switch it off. */
export function thinkingByEffort(effort: string): ChatOptions['thinking'] {
  if (effort === 'none' || effort === 'minimal') return false
  return effort === 'low' || effort === 'medium' || effort === 'high' ? effort : true
}
