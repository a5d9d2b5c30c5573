// Starts a grammar worker as a thread of this process.
import { startNodeLineWorker } from '../../text/workers/nodeQueueWorker.js'
import type { VocabularyBytes } from '../automaton/tokenTrie.js'
import type { GrammarWorker } from './grammarMessages.js'

export function startNodeGrammarWorker(vocabulary: VocabularyBytes | null): GrammarWorker {
  const file = new URL('./nodeGrammarWorker.thread.js', import.meta.url)
  return startNodeLineWorker(file, { heapMegabytes: 512, workerData: vocabulary })
}
