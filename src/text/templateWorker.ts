// The thread that renders chat templates in Node: see templateRenderer.ts.
import { parentPort } from 'node:worker_threads'
import { renderTemplate } from './templateEngine.js'
import type { TemplateReply, TemplateRequest } from './templateRenderer.js'

const port = parentPort!
const send = (reply: TemplateReply) => port.postMessage(reply)

port.on('message', (request: TemplateRequest) => {
  send(renderTemplate(request.source, request.sets, request.maxOutput))
})
send('ready')
