import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { moeflux } from './moeflux.js'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))

describe('the moeflux command', () => {
  it('shows its version', async () => {
    expect(await moeflux(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
  })

  it('shows help with examples on stdout', async () => {
    const { code, stdout, stderr } = await moeflux(['--help'])
    expect(code).toBe(0)
    expect(stdout).toContain('Examples:')
    expect(stderr).toBe('')
  })

  it.each([[['--frobnicate']]])('refuses %j with one line and exit code 2', async args => {
    const { code, stdout, stderr } = await moeflux(args)
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toMatch(/^error: .*frobnicate.*\n$/)
  })
})
