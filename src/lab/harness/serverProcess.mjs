// `moeflux serve` as another process, as users run it, with a home and a temporary folder of its own, so that what it
// leaves behind can be seen.
import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const MAIN = fileURLToPath(new URL('../../../dist/apps/cli/main.js', import.meta.url))
const START_MS = 60_000
const MAX_LOG_CHARACTERS = 64 * 2 ** 20

// A server ends with whom it was started by.
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    console.error(`ended by ${signal}`)
    process.exit(1)
  })
}

/** `folder` is where the server's home and temporary files go. */
export async function startServer({ folder, args }) {
  const temporary = join(folder, 'tmp')
  const home = join(folder, 'home')
  await Promise.all([mkdir(temporary, { recursive: true }), mkdir(home, { recursive: true })])
  const environment = { ...process.env, NO_COLOR: '1', TMPDIR: temporary, MOEFLUX_HOME: home, MOEFLUX_API_KEY: '' }
  const child = spawn(process.execPath, [MAIN, 'serve', '--port', '0', ...args], {
    env: environment,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const killWithParent = () => child.kill('SIGKILL')
  process.once('exit', killWithParent)
  let log = ''
  let exit = null
  const ended = new Promise(resolve => {
    child.on('close', (code, signal) => {
      exit = { code, signal }
      process.removeListener('exit', killWithParent)
      resolve(exit)
    })
  })
  const port = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no server after ${START_MS} ms: ${log}`)), START_MS)
    child.stderr.setEncoding('utf8').on('data', text => {
      if (log.length < MAX_LOG_CHARACTERS) log += text
      const found = /at http:\/\/127\.0\.0\.1:(\d+)/.exec(log)?.[1]
      if (found === undefined) return
      clearTimeout(timer)
      resolve(Number(found))
    })
    void ended.then(() => reject(new Error(`the server ended: ${log}`)))
  })
  return {
    port,
    pid: child.pid,
    log: () => log,
    /** Code and signal, once it has ended. */
    exit: () => exit,
    /** Files that it has in its temporary folder. */
    leftovers: () => readdirSync(temporary, { recursive: true }).map(String),
    async metric(name) {
      const response = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(10_000) })
      return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(await response.text())?.[1])
    },
    /** SIGTERM; SIGKILL where it has not ended after `limitMs`. */
    async stop(limitMs) {
      const started = performance.now()
      child.kill('SIGTERM')
      let isKilled = false
      const timer = setTimeout(() => {
        isKilled = true
        child.kill('SIGKILL')
      }, limitMs)
      const { code, signal } = await ended
      clearTimeout(timer)
      return { code, signal, isKilled, milliseconds: Math.round(performance.now() - started) }
    },
  }
}
