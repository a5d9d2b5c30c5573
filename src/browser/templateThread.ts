// The worker that renders chat templates in a tab: see text/templateRenderer.ts.
import { renderTemplate } from '../text/templateEngine.js'
import type { TemplateReply, TemplateRequest } from '../text/templateRenderer.js'

const send = (reply: TemplateReply) => postMessage(reply)

addEventListener('message', ({ data }: MessageEvent<TemplateRequest>) => {
  send(renderTemplate(data.source, data.sets, data.maxOutput))
})
send('ready')
