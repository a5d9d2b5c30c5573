// Tests that need a server of another project: where it is not installed they fail under CI, and elsewhere say in one line
// how to get it.
import { it } from 'vitest'
import { missing } from '../../scripts/scaleOut/servers.mjs'

type Name = Parameters<typeof missing>[0]

export function withServers(names: readonly Name[]): typeof it | typeof it.skip {
  const lines = names.map(missing).filter(line => line !== null)
  if (lines.length === 0) return it
  if (process.env.CI) {
    it(`has ${names.join(', ')}`, () => {
      throw new Error(lines.join('; '))
    })
  } else console.warn(`not run: ${lines.join('; ')}`)
  return it.skip
}
