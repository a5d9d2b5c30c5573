// Opens an address in the user's browser, by the program that each system has for it.
import { spawn } from 'node:child_process'
import type { Cli } from './action.js'

const OPENERS: Partial<Record<NodeJS.Platform, readonly string[]>> = {
  darwin: ['open'],
  win32: ['rundll32', 'url.dll,FileProtocolHandler'],
}

export function openBrowser(cli: Cli, url: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const failed = (how: string) => cli.notice(`no browser could be opened (${program}: ${how}); open ${url} yourself`)
  const child = spawn(program, [...args, url], { stdio: 'ignore', detached: true })
  child.once('error', (error: NodeJS.ErrnoException) => failed(error.code ?? error.message))
  child.once('exit', code => {
    if (code !== 0 && code !== null) failed(`exit code ${code}`)
  })
  child.unref()
}
