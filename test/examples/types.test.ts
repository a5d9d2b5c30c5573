// The examples as TypeScript, in its strict mode: what they do with the library is what its types say.
import { execFile } from 'node:child_process'
import { cpSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { repository, temporaryFolder } from '../support/packedFiles.js'

const run = promisify(execFile)

it('the examples are TypeScript as they stand', async () => {
  const folder = temporaryFolder()
  const examples = join(repository, 'examples')
  for (const name of readdirSync(examples)) cpSync(join(examples, name), join(folder, name.replace(/\.mjs$/, '.mts')))
  symlinkSync(join(repository, 'node_modules'), join(folder, 'node_modules'))
  const types = (file: string) => [join(repository, 'dist', file)]
  const config = {
    compilerOptions: {
      ...{ strict: true, noEmit: true, skipLibCheck: true, target: 'es2023', module: 'nodenext', types: ['node'] },
      paths: {
        moeflux: types('index.d.ts'),
        'moeflux/server': types('server/serve.d.ts'),
        'moeflux/ai': types('ai/provider.d.ts'),
      },
    },
    include: ['*.mts'],
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const tsc = join(repository, 'node_modules/.bin/tsc')
  const { stdout } = await run(tsc, ['-p', folder], { timeout: 100_000 }).catch(error => error as { stdout: string })
  expect(stdout).toBe('')
})
