// Asks a server's /health all the time from a process of its own; see src/lab/soak/healthProbe.mjs.
import { fork } from 'node:child_process'
import { once } from 'node:events'

interface Latencies {
  readonly count: number
  readonly p50: number
  readonly p99: number
  readonly p999: number
  readonly max: number
}

export interface HealthReport {
  readonly server: Latencies
  readonly own: Latencies // without the time that the server waited for a processor
  readonly problems: readonly string[]
}

export function watchHealth(port: number, pid: number): { stop(): Promise<HealthReport> } {
  const child = fork('src/lab/soak/healthProbe.mjs', [String(port), String(pid)])
  let last: HealthReport | null = null
  child.on('message', report => (last = report as HealthReport))
  return {
    async stop() {
      const ended = once(child, 'close')
      child.send('stop')
      await ended
      if (last === null) throw new Error('the probe told nothing')
      return last
    },
  }
}
