// A grammar worker in a tab: see constrain/grammarService.ts. Its first message is the vocabulary, or null.
import type { GrammarRequest } from '../constrain/grammarMessages.js'
import { GrammarService } from '../constrain/grammarService.js'
import type { VocabularyBytes } from '../constrain/tokenTrie.js'

let service: GrammarService | null = null

addEventListener('message', ({ data }: MessageEvent<VocabularyBytes | GrammarRequest | null>) => {
  if (data !== null && 'type' in data) service?.hear(data)
  else {
    service = new GrammarService(data, (reply, transfer) => postMessage(reply, { transfer }))
    postMessage('ready')
  }
})
