import type { IPty } from '@lydell/node-pty'

/** A command in a pseudo-terminal, as a person would sit before it. */
export class Screen {
  private seen = ''
  private from = 0
  private readonly exit: Promise<number>
  private wake = () => {}

  constructor(private readonly terminal: IPty) {
    terminal.onData(text => {
      this.seen += text
      this.wake()
    })
    this.exit = new Promise(resolve => terminal.onExit(({ exitCode }) => resolve(exitCode)))
  }

  type(keys: string): void {
    this.terminal.write(keys)
  }

  resize(columns: number, rows: number): void {
    this.terminal.resize(columns, rows)
  }

  /** Waits until the screen shows something new that matches, and returns what came up to it. */
  async shows(pattern: RegExp, milliseconds = 30_000): Promise<string> {
    const deadline = Date.now() + milliseconds
    for (;;) {
      const text = this.seen.slice(this.from)
      const match = pattern.exec(plain(text))
      if (match !== null) {
        this.from = this.seen.length
        return plain(text)
      }
      const left = deadline - Date.now()
      if (left <= 0) throw new Error(`waited for ${pattern}, the screen shows: ${JSON.stringify(plain(text))}`)
      await new Promise<void>(resolve => {
        const timer = setTimeout(resolve, Math.min(left, 500))
        this.wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
  }

  exited(): Promise<number> {
    return this.exit
  }

  kill(): void {
    try {
      this.terminal.kill()
    } catch {} // it is gone already
  }
}

/** Without colours and cursor movements. */
export function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
  return text.replace(/\u001b\[[?\d;]*[a-zA-Z]/g, '').replaceAll('\r', '')
}
