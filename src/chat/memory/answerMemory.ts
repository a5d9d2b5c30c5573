// What the model said, so that it can be put back into later prompts exactly as it was said. Some things get lost when a
// client sends an answer back: the spacing of a tool call (the client sends parsed JSON), the thinking before it (most
// clients drop it), and the tokens themselves where the model did not write them in the tokenizer's own way. Each would end
// a reusable prefix. Where there are stores, they get notes of it, so that another process makes the same prompts. Bounded;
// forgetting costs only speed.
import type { Tokenizer } from '../../text/tokenizer/tokenizer.js'
import type { TextWorkers } from '../../text/workers/textWorkers.js'
import type { NoteStores } from '../stateStores.js'
import { CallMemory } from './rawAnswerCache.js'
import { IdMemory } from './tokenIdCache.js'

export class AnswerMemory {
  readonly calls: CallMemory
  readonly ids: IdMemory

  constructor(tokenizer: Tokenizer, workers: TextWorkers, notes: NoteStores | null) {
    this.calls = new CallMemory(notes)
    this.ids = new IdMemory(tokenizer, workers, notes)
  }
}
