// The parent's side of the health probe.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const PROBE = fileURLToPath(new URL('healthProbe.mjs', import.meta.url))

export function watchHealth({ port, pid }) {
  const child = fork(PROBE, [String(port), String(pid)])
  const none = { count: 0, p50: null, p99: null, p999: null, max: null }
  let last = { server: none, own: none, idle: none, problems: [], silentMs: 0 }
  child.on('message', report => (last = report))
  return {
    /**
     * Latencies in milliseconds of the server (`own`: without the time that it waited for a processor) and of one that
     * does nothing, what was wrong with answers, and how long the server has not answered now.
     */
    summary: () => last,
    async stop() {
      const ended = once(child, 'close')
      child.send('stop')
      await ended
    },
  }
}
