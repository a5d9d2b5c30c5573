// Bun and Deno, where they are installed: the same words as from Node, read from files that threads read, and over HTTP.
import { execFile, execFileSync } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { temporaryFolder } from '../../support/models/packedFiles.js'
import { MAIN, moeflux } from './moeflux.js'

const execute = promisify(execFile)
const RUNTIMES = [
  ['bun', []],
  ['deno', ['run', '--allow-all']],
] as const

function isInstalled(program: string): boolean {
  try {
    return execFileSync(program, ['--version']).length > 0
  } catch {
    return false
  }
}

for (const [program, options] of RUNTIMES) {
  describe.skipIf(!isInstalled(program))(program, () => {
    const run = async (...args: string[]) => {
      const env = { ...process.env, MOEFLUX_HOME: temporaryFolder() }
      return await execute(program, [...options, MAIN, ...args], { env })
    }

    test('answers as Node does', async () => {
      const args = ['run', '--threads', '2', '--temp', '0', '-n', '12', '-q', 'Who are you?']
      const [{ stdout, stderr }, node] = await Promise.all([run(...args), moeflux(args)])
      expect({ stdout, stderr }).toEqual({ stdout: node.stdout, stderr: '' })
    })

    test('answers in JSON of a schema, and checks the machine', async () => {
      const schema = {
        type: 'object',
        properties: { a: { enum: [1, 2] } },
        required: ['a'],
        additionalProperties: false,
      }
      const [answer, doctor] = await Promise.all([
        run('run', '--threads', '1', '-q', '--json-schema', JSON.stringify(schema), 'Hi'),
        run('doctor', '--json'),
      ])
      expect([1, 2]).toContain(JSON.parse(answer.stdout).a)
      expect(JSON.parse(doctor.stdout)).toMatchObject({ auto: { backend: expect.stringMatching(/wasm|webgpu/) } })
    })
  })
}
