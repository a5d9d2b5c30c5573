// The linter and the compiler over all sources, tests and the page, beside one another. All of them run to their end, so that
// one look shows everything that is wrong.
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const require = createRequire(import.meta.url)
const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const tsc = ['typescript', 'bin/tsc', '-p']
const checks = [
  ['@biomejs/biome', 'bin/biome', 'check', '.'],
  [...tsc, 'tsconfig.json', '--noEmit'],
  [...tsc, 'test/tsconfig.json'],
  [...tsc, 'src/apps/web/tsconfig.json'],
]

/** Whether it found nothing. */
function passes([name, program, ...args]) {
  const file = join(dirname(require.resolve(`${name}/package.json`)), program)
  return new Promise((resolve, reject) => {
    const check = spawn(process.execPath, [file, ...args], { cwd: root, stdio: 'inherit' })
    check.once('error', reject)
    check.once('close', code => resolve(code === 0))
  })
}

const passed = await Promise.all(checks.map(passes))
if (!passed.every(Boolean)) process.exitCode = 1
