// Clients that want the connection closed after the answer, and get it while they still send their body (a full house, a
// body past the limit): Node closes at once, what they send after that is refused by a reset, and the reset takes the
// answer away from them before they have read it. So the connection is closed when both are through, the answer and the
// body. How long that may take is limited by the time for a request to arrive.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'

export function closeAfterBodies(server: Server): void {
  server.prependListener('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (outgoing.shouldKeepAlive || !hasBody(incoming)) return
    outgoing.shouldKeepAlive = true // to Node; the client gets its end of the connection below
    const { socket } = incoming
    const endIfThrough = () => {
      if (incoming.readableEnded && outgoing.writableFinished) socket.end()
    }
    incoming.once('end', endIfThrough)
    outgoing.once('finish', endIfThrough)
  })
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}
