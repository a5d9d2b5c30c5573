// The grammar worker in a tab: see constrain/grammarService.ts. Its first message is the vocabulary. The build puts
// xgrammar in as the CommonJS that it is.
import type { ConstraintRequest, ConstraintWorkerData } from '../constrain/grammarMessages.js'
import { GrammarService } from '../constrain/grammarService.js'

let service: GrammarService | null = null

async function loadXgrammar() {
  const library = await import('@mlc-ai/web-xgrammar')
  return (library as unknown as { default?: typeof library }).default ?? library
}

addEventListener('message', ({ data }: MessageEvent<ConstraintWorkerData | (ConstraintRequest & { id: number })>) => {
  if ('pieces' in data) {
    service = new GrammarService(loadXgrammar, data, (reply, transfer) => postMessage(reply, { transfer }))
  } else service?.hear(data)
})
