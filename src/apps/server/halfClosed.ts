// Clients that send a request and close their side of the connection want the answer all the same (`nc -N` and some
// libraries do so). To the server that looks like a client that is gone: only when something is sent to it does its
// machine say that nobody listens. So the beginning of the answer is sent a letter at a time, which is the same for every
// answer; in a stream, comments. One that is gone is known after two letters.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'

/** What every answer begins with. */
const FIRST_LETTERS = 'HTTP/1.1 '
/** A client that leaves later is noticed later: letters are few. */
const DELAYS_MS = [0, 25, 100, 400, 1_500, 6_000, 20_000, 60_000, 180_000]

/** Without this the connection is closed as soon as the client closes its side. */
export function answerHalfClosed(server: Server): void {
  ;(server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true
}

/**
 * Finds out whether a client that has closed its side still listens, until the returned function is called.
 * `sendComment` puts something into an answer that has begun, where that can be done.
 */
export function probeHalfClosed(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  sendComment: () => void,
): () => void {
  const { socket } = incoming
  let timer: NodeJS.Timeout | undefined
  let probes = 0
  let lettersSent = 0
  const probe = () => {
    if (outgoing.writableEnded || outgoing.destroyed || probes >= DELAYS_MS.length) return
    if (outgoing.headersSent) sendComment()
    // Before its turn on the connection the answer has no socket.
    else if (outgoing.socket !== null) socket.write(FIRST_LETTERS[lettersSent++])
    probes++
    timer = setTimeout(probe, DELAYS_MS[probes])
    timer.unref()
  }
  const start = () => {
    skipLetters(outgoing, () => lettersSent)
    probe()
  }
  if (socket.readableEnded) start()
  else socket.once('end', start)
  return () => {
    clearTimeout(timer)
    socket.removeListener('end', start)
  }
}

/** The answer's head without the letters that have been sent already. */
function skipLetters(outgoing: ServerResponse, lettersSent: () => number): void {
  const head = outgoing as unknown as { _header: string; writeHead: (...args: unknown[]) => unknown }
  const writeHead = head.writeHead.bind(outgoing)
  head.writeHead = (...args) => {
    writeHead(...args)
    head._header = head._header.slice(lettersSent())
    return outgoing
  }
}
