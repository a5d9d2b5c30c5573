// Runs a script of this repository with `--json` in a process of its own and gives its report. A script that found
// something wrong ends with an exit code of its own, but reports all the same.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { repository } from './models/packedFiles.js'

export interface ScriptProblem {
  readonly problem: string
  readonly again?: string // the command that shows it again
}

export function scriptReport<T>(script: string, args: readonly string[], timeoutMs: number): Promise<T> {
  const command = [join(repository, 'src/lab', script), ...args, '--json']
  const options = { timeout: timeoutMs, maxBuffer: 64 * 2 ** 20 }
  return new Promise((resolve, reject) => {
    execFile(process.execPath, command, options, (error, stdout, stderr) => {
      try {
        resolve(JSON.parse(stdout) as T)
      } catch {
        reject(new Error(`${script} gave no report: ${error?.message ?? ''}\n${stderr.slice(-2000)}`))
      }
    })
  })
}

/** What to see of problems in a failed test. */
export function problemLines(problems: readonly ScriptProblem[]): string[] {
  return problems.map(({ problem, again }) => `${problem.slice(0, 300)}${again === undefined ? '' : ` (${again})`}`)
}
