// Tests that need a server of another project: where it is not installed they fail under CI, and elsewhere each says in one line
// that it was not run, and how to get what it needs.
import { test } from 'vitest'
import { missing } from '../../../src/lab/scaleOut/servers.mjs'

type Name = Parameters<typeof missing>[0]
type Define = (title: string, work: () => Promise<void>, timeout?: number) => void

export function withServers(names: readonly Name[]): Define {
  const lines = names.map(missing).filter(line => line !== null)
  if (lines.length === 0) return (title, work, timeout) => test(title, work, timeout)
  const why = lines.join('; ')
  if (process.env.CI) {
    return title =>
      test(title, () => {
        throw new Error(why)
      })
  }
  return (title, work) => {
    console.warn(`not run: ${title} (${why})`)
    test.skip(title, work)
  }
}
