// The worker that renders and encodes in a tab: see text/workers/textService.ts.
import type { EncoderData } from '../../text/tokenizer/encoder.js'
import { type TextJob, TextService } from '../../text/workers/textService.js'

let service: TextService | null = null

addEventListener('message', ({ data }: MessageEvent<EncoderData | TextJob>) => {
  if ('pairs' in data) service = new TextService(data, (reply, transfer = []) => postMessage(reply, { transfer }))
  else service?.hear(data)
})
