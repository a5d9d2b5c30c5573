// What all commands share: help, versions, exit codes, one line for an error.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { createProgram } from '#moeflux/apps/cli/program.js'
import { moeflux } from './moeflux.js'

const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'))

describe('the moeflux command', () => {
  test.each(['--version', '-v', '-V'])('shows its version with %s', async flag => {
    expect(await moeflux([flag])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
  })

  test('refuses a Node that is too old with one line', async () => {
    const versions = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "18.20.8" } })'
    const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(versions)}` }
    expect(await moeflux(['run', 'Hi'], { env })).toEqual({
      code: 1,
      stdout: '',
      stderr: 'error: moeflux needs Node 20 or newer, and this is Node 18.20.8: see https://nodejs.org\n',
    })
  })

  test('shows help with examples on stdout', async () => {
    const { code, stdout, stderr } = await moeflux(['--help'])
    expect(code).toBe(0)
    expect(stdout).toContain('Examples:')
    expect(stderr).toBe('')
  })

  test.each([
    [['frobnicate'], /unknown command 'frobnicate'/],
    [['inspekt', 'a3b'], /unknown command 'inspekt' \(Did you mean inspect\?\)/],
    [['--frobnicate'], /unknown option '--frobnicate'/],
    [['inspect', 'a3b', '--jsn'], /unknown option '--jsn' \(Did you mean --json\?\)/],
    [['help', 'frobnicate'], /unknown command 'frobnicate'/],
    [['inspect'], /missing required argument 'model'/],
    [['inspect', 'a3b', 'a17b'], /too many arguments/],
    [['inspect', 'a3b', '--context', '0'], /--context <tokens>.*'0'.*at least 1/],
    [['inspect', 'a3b', '--context', '1e3'], /--context <tokens>.*'1e3'/],
    [['serve', '--host', '0.0.0.0', '--api-key', ''], /--api-key: the key is empty/],
    [['inspect', 'a3b', '--memory', '6 apples'], /--memory <size>.*'6 apples'.*6GB/],
    [['inspect', 'a3b', '--read-speed', '0'], /--read-speed <size>.*'0'.*above zero/],
    [['inspect', 'a3b', '--compute-speed', '0GB'], /--compute-speed <size>.*'0GB'.*above zero/],
    [['inspect', 'a3b', '--experts-per-token', '9'], /--experts-per-token: got 9, want an integer from 1 to 8/],
    [['inspect', 'a3b', '--context', '262145'], /--context: got 262145, want an integer from 1 to 262144/],
    [['simulate', 'x.trace', '--disk', '0'], /--disk <size>.*'0'.*above zero/],
    [['simulate', 'x.trace', '--gpu', '1GB,120%'], /--gpu <sizes>.*'1GB,120%'.*100%/],
    [['serve', '--max-body', '0'], /--max-body <size>.*'0'.*above zero/],
  ])('refuses %j with one line and exit code 2', async (args, line) => {
    const { code, stdout, stderr } = await moeflux(args)
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toMatch(/^error: [^\n]*\n$/)
    expect(stderr).toMatch(line)
  })

  test('shows help without a command, as an error', async () => {
    const { code, stdout, stderr } = await moeflux([])
    expect(code).toBe(2)
    expect(stdout).toBe('')
    expect(stderr).toContain('Usage: moeflux')
  })

  test('has help with examples for every command', () => {
    const commands = createProgram().commands.filter(command => command.name() !== 'help')
    expect(commands.map(command => command.name())).toContain('run')
    for (const command of commands) {
      let help = ''
      command.configureOutput({ writeOut: text => (help += text) }).outputHelp()
      expect(help).toContain(`Usage: moeflux ${command.name()}`)
      expect(help, command.name()).toContain('Examples:')
      expect(help, command.name()).toContain('--quiet')
    }
  })
})
