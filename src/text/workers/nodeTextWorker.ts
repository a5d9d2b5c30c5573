// The thread that renders and encodes in Node: see textService.ts.
import { parentPort } from 'node:worker_threads'
import type { EncoderData } from '../tokenizer/encoder.js'
import { type TextJob, TextService } from './textService.js'

const port = parentPort!
let service: TextService | null = null

port.on('message', (message: EncoderData | TextJob) => {
  if ('pairs' in message)
    service = new TextService(message, (reply, transfer = []) => port.postMessage(reply, transfer))
  else service?.hear(message)
})
