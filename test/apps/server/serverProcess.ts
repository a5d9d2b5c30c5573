// `moeflux serve` as another process, as users run it: started on a free port, asked over HTTP, stopped by a signal.
import { type ChildProcess, spawn } from 'node:child_process'
import { MAIN } from '../cli/moeflux.js'

export interface ServerProcess {
  readonly url: string
  readonly port: number
  readonly child: ChildProcess
  /** What it wrote to stderr so far. */
  log(): string
  /** The value of a metric without labels. */
  metric(name: string): Promise<number>
  /** Waits until nothing runs or waits any more. */
  idle(): Promise<void>
  /** Sends SIGTERM; gives the exit code and how long it took. */
  stop(): Promise<{ code: number | null; milliseconds: number }>
}

const START_TIMEOUT_MS = 60_000

export async function startServer(args: readonly string[] = [], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [MAIN, 'serve', '--port', '0', '--threads', '1', ...args], {
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let log = ''
  const ended = new Promise<number | null>(resolve => child.on('close', resolve))
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`no server after ${START_TIMEOUT_MS} ms: ${log}`)),
      START_TIMEOUT_MS,
    )
    child.stderr.setEncoding('utf8').on('data', text => {
      log += text
      const found = /at (http:\/\/\S+)/.exec(log)?.[1]
      if (found === undefined) return
      clearTimeout(timer)
      resolve(found)
    })
    void ended.then(code => reject(new Error(`the server ended with ${code}: ${log}`)))
  })
  const headers: Record<string, string> = env.MOEFLUX_API_KEY ? { 'x-api-key': env.MOEFLUX_API_KEY } : {}
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(`${url}/metrics`, { headers })).text()
    const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]
    if (value === undefined) throw new Error(`no metric ${name} in:\n${text}`)
    return Number(value)
  }
  const server: ServerProcess = {
    url,
    port: Number(new URL(url).port),
    child,
    log: () => log,
    metric,
    async idle() {
      const deadline = Date.now() + 5_000
      for (;;) {
        const counts = [await metric('moeflux_requests_active'), await metric('moeflux_sequences_active')]
        if (counts.every(count => count === 0)) return
        if (Date.now() > deadline) throw new Error(`still active after 5 s: ${counts}\n${log}`)
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    },
    async stop() {
      const started = Date.now()
      child.kill('SIGTERM')
      return { code: await ended, milliseconds: Date.now() - started }
    },
  }
  return server
}
