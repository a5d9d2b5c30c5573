// A grammar worker in a tab: see grammar/workers/grammarService.ts. Its first message is the vocabulary, or null.
import type { VocabularyBytes } from '../../grammar/automaton/tokenTrie.js'
import type { GrammarRequest } from '../../grammar/workers/grammarMessages.js'
import { GrammarService } from '../../grammar/workers/grammarService.js'

let service: GrammarService | null = null

addEventListener('message', ({ data }: MessageEvent<VocabularyBytes | GrammarRequest | null>) => {
  if (data !== null && 'type' in data) service?.hear(data)
  else {
    service = new GrammarService(data, (reply, transfer) => postMessage(reply, { transfer }))
    postMessage('ready')
  }
})
