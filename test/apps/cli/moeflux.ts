// Runs the built command as a user would: another process, real pipes.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

export const MAIN = fileURLToPath(new URL('../../../dist/apps/cli/main.js', import.meta.url))

export interface Finished {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface MoefluxOptions {
  readonly input?: string
  /** Stdin is a pipe that nobody writes to and nobody closes. */
  readonly leavesOpen?: boolean
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
}

export function moeflux(args: readonly string[], options: MoefluxOptions = {}): Promise<Finished> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [MAIN, ...args], {
      cwd: options.cwd,
      env: { ...process.env, ...options.env },
      stdio: [options.input === undefined && !options.leavesOpen ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    })
    let stdout = ''
    let stderr = ''
    child.stdout?.setEncoding('utf8').on('data', text => (stdout += text))
    child.stderr?.setEncoding('utf8').on('data', text => (stderr += text))
    child.on('error', reject)
    child.on('close', code => resolve({ code, stdout, stderr }))
    if (!options.leavesOpen) child.stdin?.end(options.input)
  })
}
