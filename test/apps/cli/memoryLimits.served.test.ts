// The command under real limits on its memory, made with control groups: it works or says why not, and is never killed.
// `src/lab/bench/memoryLimits.mjs` does the same with a model of hundreds of megabytes.
import { describe, expect, test } from 'vitest'
import { MAIN } from './moeflux.js'

interface Capped {
  whyNot(): string | null
  runCapped(bytes: number, command: string, args: readonly string[]): Promise<CappedEnd>
}

interface CappedEnd {
  readonly code: number | null
  readonly killed: boolean
  readonly stdout: string
  readonly stderr: string
}

const { whyNot, runCapped } = (await import(
  new URL('../../../src/lab/bench/capped.mjs', import.meta.url).href
)) as Capped
const reason = whyNot()
const run = (megabytes: number, ...flags: string[]) => {
  const args = ['run', '--seed', '1', '--max-tokens', '12', '--backend', 'wasm', ...flags, 'Tell me a story']
  return runCapped(megabytes * 1e6, process.execPath, [MAIN, ...args])
}

/** In the suite of a machine without such groups this shows as skipped, with the reason. */
const limited = (name: string, body: () => Promise<void>) =>
  test(name, async context => {
    if (reason !== null) context.skip(reason)
    await body()
  })

describe('a limit on memory', () => {
  limited('is kept or the model refused, whatever it is', async () => {
    const ends = new Map<number, CappedEnd>()
    for (const megabytes of [300, 150, 120, 100, 80, 60]) ends.set(megabytes, await run(megabytes))
    for (const [megabytes, { killed, code, stdout, stderr }] of ends) {
      expect(killed, `at ${megabytes} MB`).toBe(false)
      if (code === 0) expect(stdout.length).toBeGreaterThan(20)
      else
        expect(stderr).toMatch(
          /^error: the model needs \d+ MB \(.*\), and \d+ MB are free under .*: \d+ MB too little\. .+\n$/,
        )
    }
    expect(ends.get(300)?.code).toBe(0)
    expect(ends.get(60)?.code).toBe(1)
    // The same words at every limit that is enough.
    const answers = [...ends.values()].filter(({ code }) => code === 0).map(({ stdout }) => stdout)
    expect(new Set(answers).size).toBe(1)
  })

  limited('that is too low names flags that are enough', async () => {
    for (let megabytes = 116; ; megabytes -= 4) {
      const { killed, code, stderr } = await run(megabytes)
      expect(killed).toBe(false)
      if (code === 0) continue
      const flags = /\. ((?:--[a-z-]+ \d+)(?: with --[a-z-]+ \d+)*) would fit\n$/.exec(stderr)?.[1]
      expect(flags, stderr).toBeDefined()
      const again = await run(megabytes, ...(flags as string).split(/ with | /))
      expect(again, again.stderr).toMatchObject({ code: 0, killed: false })
      return
    }
  })
})
