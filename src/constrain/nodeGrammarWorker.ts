// Starts a grammar worker as a thread of this process.
import { startNodeLineWorker } from '../text/nodeLineWorker.js'
import type { GrammarWorker } from './grammarMessages.js'
import type { VocabularyBytes } from './tokenTrie.js'

export function startNodeGrammarWorker(vocabulary: VocabularyBytes | null): GrammarWorker {
  const file = new URL('./grammarWorker.thread.js', import.meta.url)
  return startNodeLineWorker(file, { heapMegabytes: 512, workerData: vocabulary })
}
