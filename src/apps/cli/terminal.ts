// Where a command's words go. The answer goes to stdout and nothing else does; notices, progress and errors go to
// stderr. Colours only on a terminal and without NO_COLOR. A reader that goes away (`| head`) ends the command quietly.
import { wrapWords } from './format.js'
import { ProgressBar, type ProgressUnit } from './progressBar.js'

export interface TerminalOptions {
  readonly quiet: boolean
  readonly verbose: boolean
}

export class Terminal {
  readonly quiet: boolean
  readonly verbose: boolean
  private readonly bars = new Set<ProgressBar>()

  constructor(options: TerminalOptions) {
    this.quiet = options.quiet
    this.verbose = options.verbose
  }

  /** Exactly this text to stdout; waits while the reader is slow and rejects with EPIPE when it is gone. */
  print(text: string): Promise<void> {
    for (const bar of this.bars) bar.clear()
    return new Promise((resolve, reject) => {
      process.stdout.write(text, error => (error ? reject(error) : resolve()))
    })
  }

  printJson(value: unknown): Promise<void> {
    return this.print(`${JSON.stringify(value, null, 2)}\n`)
  }

  /** A line for the user on stderr; silent with --quiet. */
  notice(line: string): void {
    if (!this.quiet) this.error(line)
  }

  /** A line for the curious: with --verbose only. */
  detail(line: string): void {
    if (this.verbose) this.error(this.dim(line))
  }

  /** Text on stderr as it comes, without a newline. */
  errorText(text: string): void {
    for (const bar of this.bars) bar.clear()
    process.stderr.write(text)
  }

  /** A line, which may take several on a terminal. */
  error(line: string): void {
    this.errorText(`${wrapWords(line, this.errorWidth).join('\n')}\n`)
  }

  /** Columns that lines of stdout have; in a pipe as many as they take. */
  get width(): number {
    return columnsOf(process.stdout)
  }

  /** The same of stderr. */
  get errorWidth(): number {
    return columnsOf(process.stderr)
  }

  progressBar(unit: ProgressUnit = 'bytes'): ProgressBar {
    const bar = new ProgressBar(this.quiet ? null : process.stderr, unit)
    this.bars.add(bar)
    return bar
  }

  /** For text that goes to stderr. */
  dim(text: string): string {
    return colours(process.stderr) ? `\u001b[2m${text}\u001b[22m` : text
  }

  bold(text: string): string {
    return colours(process.stdout) ? `\u001b[1m${text}\u001b[22m` : text
  }
}

/** NO_COLOR set to anything but empty switches colours off; FORCE_COLOR is left to those who set it. */
export function colours(stream: { isTTY?: boolean }): boolean {
  if (process.env.NO_COLOR !== undefined && process.env.NO_COLOR !== '') return false
  if (process.env.TERM === 'dumb') return false
  return stream.isTTY === true
}

/** Some terminals say that they have no columns. */
export function columnsOf({ isTTY, columns = 0 }: { isTTY?: boolean; columns?: number }): number {
  return isTTY === true && columns > 0 ? columns : Number.POSITIVE_INFINITY
}
