// A prompt as it is evaluated: its token ids, and the positions in it that are worth keeping a state at.
import type { StoreWait } from '../stores/storeWait.js'
import type { PlainMessage } from '../text/template/messages.js'
import type { Section } from '../text/tokenizer/encoder.js'
import type { Landmark } from './prefixCache.js'

export interface Landing {
  readonly position: number // so many tokens of the prompt are before it
  readonly landmark: Landmark
}

export interface Prompt {
  readonly ids: readonly number[]
  readonly text: string // of a chat
  /** Stands inside text that only looks like a control token. */
  readonly mark: string
  readonly sections: readonly Section[]
  readonly landings: readonly Landing[] // ascending, no position twice
  /** Where earlier requests may have left a state in a store, beside the landings. */
  readonly boundaries: readonly number[]
  /** Who may use the states that are kept of it, and whose it may use; '' for all. */
  readonly scope: string
  /** The prompt ends inside thinking. */
  readonly insideThinking: boolean
  /** It begins with ids that encoding its text would not give. */
  readonly hasOwnIds: boolean
  /** What was waited for stores on its account. */
  readonly wait: StoreWait
  /** Whether the prompt of the next turn, a tool's result, begins with this one and `written`, which clients send back as `answer`. */
  isRepeated(answer: PlainMessage, written: string, signal: AbortSignal): Promise<boolean>
}
