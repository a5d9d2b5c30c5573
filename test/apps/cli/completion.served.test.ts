// Completion for each shell: what the scripts know, and what bash makes of one.
import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { completionScript } from '#moeflux/apps/cli/completionScripts.js'
import { createProgram } from '#moeflux/apps/cli/program.js'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'

const SHELLS = ['bash', 'zsh', 'fish'] as const

test.each(SHELLS)('%s knows every command and every flag', async shell => {
  const program = createProgram()
  const { code, stdout } = await moeflux(['completion', shell])
  expect({ code, stdout }).toEqual({ code: 0, stdout: completionScript(shell, program) })
  for (const command of program.commands) {
    expect(stdout).toContain(command.name())
    for (const { long } of command.options) {
      expect(stdout).toContain(shell === 'fish' ? `-l ${long?.slice(2)}` : long)
    }
  }
})

// Linux in CI has all of them (.ci/run); elsewhere a missing one is shown as skipped.
const installed = SHELLS.filter(shell => !spawnSync(shell, ['--version']).error)
const there = process.env.CI !== undefined && process.platform === 'linux' ? SHELLS : installed
const missing = SHELLS.filter(shell => !there.includes(shell))

test.skip.each(missing)('%s is not installed', () => {})

test.skipIf(process.platform === 'win32').each(there)('%s reads its script without a complaint', shell => {
  const file = join(temporaryFolder(), shell)
  writeFileSync(file, completionScript(shell, createProgram()))
  const { status, stderr } = spawnSync(shell, ['-n', file])
  expect({ status, stderr: String(stderr) }).toEqual({ status: 0, stderr: '' })
})

test.skipIf(process.platform === 'win32')('bash completes commands, flags, choices and models', () => {
  const folder = temporaryFolder()
  const command = join(folder, 'moeflux')
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`)
  chmodSync(command, 0o755)
  const cases: [string, string[]][] = [
    ['moeflux r', ['run', 'rm']],
    ['moeflux run --ba', ['--backend']],
    ['moeflux run --backend w', ['webgpu', 'wasm']],
    ['moeflux run --backend = w', ['webgpu', 'wasm']],
    ['moeflux run -m dem', ['demo']],
    ['moeflux help ver', ['verify']],
    ['moeflux completion ', ['bash', 'zsh', 'fish']],
    ['moeflux run -f some', []], // files are the shell's own
    ['moeflux -', ['-v', '--version', '-h', '--help']],
  ]
  const lines = cases.map(([line]) => `try ${line.endsWith(' ') ? `${line}''` : line}`)
  const script = `eval "$(moeflux completion bash)"
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _moeflux; echo "\${COMPREPLY[*]}"; }
${lines.join('\n')}`
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}`, MOEFLUX_HOME: folder }
  const shown = execFileSync('bash', ['-c', script], { env, encoding: 'utf8' }).split('\n')
  expect(shown.slice(0, -1)).toEqual(cases.map(([, words]) => words.join(' ')))
})

test('refuses another shell', async () => {
  const { code, stderr } = await moeflux(['completion', 'tcsh'])
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringMatching(/'tcsh'.*bash, zsh, fish/) })
})
