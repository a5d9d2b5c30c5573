// Runs a command's handler and turns how it ended into an exit code: 0 ok, 1 failed, 2 bad usage, 130 interrupted, or what
// the handler returns.
// Ctrl-C aborts `cli.signal` and lets the command stop in order; a second one leaves at once.
import type { Command } from 'commander'
import { MoefluxError, OptionError } from '../../base/errors.js'
import { MemoryPlanError } from '../../base/memoryErrors.js'
import { Terminal } from './terminal.js'

/** What a handler gets to talk with the world. */
export class Cli extends Terminal {
  readonly signal: AbortSignal
  /** Where set, called at Ctrl-C instead of aborting `signal`. */
  onInterrupt: (() => void) | null = null

  constructor(options: { quiet: boolean; verbose: boolean; signal: AbortSignal }) {
    super(options)
    this.signal = options.signal
  }
}

export const EXIT_FAILED = 1
export const EXIT_USAGE = 2
export const EXIT_INTERRUPTED = 130

const USAGE_CODES = new Set(['BAD_OPTION', 'BAD_USAGE', 'UNSUPPORTED_SCHEMA'])

/** Wraps `handler(cli, ...arguments, options)` for commander's `.action()`. */
export function action<Args extends unknown[]>(
  handler: (cli: Cli, ...args: Args) => Promise<void> | Promise<number>,
): (...args: [...Args, Command]) => Promise<void> {
  return async (...all) => {
    const command = all.at(-1) as Command
    const args = all.slice(0, -1) as unknown as Args
    const { quiet = false, verbose = false } = command.opts<{ quiet?: boolean; verbose?: boolean }>()
    const controller = new AbortController()
    const cli = new Cli({ quiet, verbose, signal: controller.signal })
    const interrupt = () => {
      if (cli.onInterrupt !== null) return cli.onInterrupt()
      if (controller.signal.aborted) process.exit(EXIT_INTERRUPTED)
      controller.abort(new Interrupted())
    }
    const outputFailed = (error: NodeJS.ErrnoException) => controller.abort(error)
    process.on('SIGINT', interrupt)
    process.stdout.on('error', outputFailed)
    try {
      process.cwd() // threads do not start where the folder is gone, and say nothing of it
      const code = await handler(cli, ...args)
      process.exitCode = controller.signal.aborted ? report(cli, controller.signal.reason) : (code ?? 0)
    } catch (error) {
      // What aborted the work is the reason it failed; the error that came back is only its echo.
      process.exitCode = report(cli, controller.signal.aborted ? controller.signal.reason : error)
    } finally {
      process.off('SIGINT', interrupt)
      process.stdout.off('error', outputFailed)
    }
  }
}

/** The user pressed Ctrl-C: exit code 130, and nothing more to say. */
export class Interrupted extends Error {}

/** Says what went wrong, in one line unless --verbose, and gives the exit code. */
export function report(terminal: Terminal, error: unknown): number {
  if (error instanceof Interrupted) return EXIT_INTERRUPTED
  if (isClosedPipe(error)) return 0
  terminal.error(errorLine(inFlags(error)))
  if (terminal.verbose && error instanceof Error && error.stack !== undefined)
    terminal.errorText(
      `${terminal.dim(stack(error).replace(OBEYED, each => (each === '\n' ? each : visible(each))))}\n`,
    )
  return error instanceof MoefluxError && USAGE_CODES.has(error.code) ? EXIT_USAGE : EXIT_FAILED
}

export function errorLine(error: unknown): string {
  const message = systemErrorInWords(error) ?? (error instanceof Error ? error.message || error.name : String(error))
  return `error: ${message
    .trim()
    .replace(/\s*\n\s*/g, ' ')
    .replace(OBEYED, visible)}`
}

/** Characters that a terminal obeys. Messages quote names that others wrote, such as those of tensors. */
const OBEYED = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu

function visible(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Flags whose names are not the option's with dashes. */
const FLAGS = new Map([
  ['contextLength', '--context'],
  ['temperature', '--temp'],
  ['repetitionPenalty', '--repeat-penalty'],
])

/** The library names its options; at the command line they are flags. */
function inFlags(error: unknown): unknown {
  if (error instanceof OptionError) return new OptionError(flagOf(error.option), error.got, error.want)
  return error instanceof MemoryPlanError ? new MemoryPlanError(error.shortage, flagOf) : error
}

function flagOf(option: string): string {
  return FLAGS.get(option) ?? `--${option.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
}

export function isClosedPipe(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code
  return code === 'EPIPE' || code === 'ERR_STREAM_DESTROYED'
}

function stack(error: Error): string {
  const own = error.stack ?? ''
  return error.cause instanceof Error ? `${own}\ncaused by: ${stack(error.cause)}` : own
}

/** What the system refuses, in words: 'notes.md: no such file or folder' for "ENOENT: no such file or directory, stat 'notes.md'". */
const WORDS = new Map([
  ['ENOENT', 'no such file or folder'],
  ['EACCES', 'this user may not do that'],
  ['EPERM', 'this user may not do that'],
  ['EEXIST', 'is there already'],
  ['EISDIR', 'is a folder, not a file'],
  ['ENOTDIR', 'a part of this path is a file, not a folder'],
  ['EROFS', 'the disk can only be read'],
  ['ELOOP', 'the links lead in a circle'],
  ['ENAMETOOLONG', 'the name is too long'],
  ['EMFILE', 'too many files are open'],
])

/** Null: it is no error of the system about a path, or not one that has words. */
function systemErrorInWords(error: unknown): string | null {
  const { code, path, syscall } = (error ?? {}) as NodeJS.ErrnoException
  if (syscall === 'uv_cwd') return 'the folder that this was started in is gone: start it in another one'
  const words = WORDS.get(code ?? '')
  return words === undefined || path === undefined ? null : `${path}: ${words}`
}
