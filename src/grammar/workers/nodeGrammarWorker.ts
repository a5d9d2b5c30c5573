// The grammar worker as a thread of Node: see grammarService.ts.
import { parentPort, workerData } from 'node:worker_threads'
import type { VocabularyBytes } from '../automaton/tokenTrie.js'
import type { GrammarRequest } from './grammarMessages.js'
import { GrammarService } from './grammarService.js'

const port = parentPort!
const service = new GrammarService(workerData as VocabularyBytes | null, (reply, transfer) =>
  port.postMessage(reply, transfer),
)
port.on('message', (request: GrammarRequest) => service.hear(request))
port.postMessage('ready')
