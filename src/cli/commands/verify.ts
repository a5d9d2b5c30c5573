// `moeflux verify`: reads every byte of a packed model and compares it with its checksums.
import type { Command } from 'commander'
import { MoefluxError } from '../../errors.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples } from '../optionValues.js'

export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description('check every byte of a packed model against its checksums')
    .argument('<model>', 'a model of the local store, or a packed folder')
    .option('--json', 'print the result as JSON')
    .action(action(verify))
  addExamples(command, ['moeflux verify ~/models/a3b'])
}

async function verify(cli: Cli, model: string, options: { json?: boolean }): Promise<void> {
  const { findModel } = await import('../../storage/modelStore.js')
  const { openNodeFolder } = await import('../../storage/nodeFolder.js')
  const { verifyPacked } = await import('../../storage/verify.js')
  const folder = await openNodeFolder(await findModel(model), { links: 'any' })
  const bar = cli.progressBar()
  const { files, bytes, hasChecksums, problems } = await verifyPacked(folder, {
    signal: cli.signal,
    onProgress: progress => bar.update(progress),
  }).finally(() => bar.clear())
  if (options.json) {
    const list = problems.map(({ code, message }) => ({ code, message }))
    await cli.printJson({ folder: folder.location, ok: list.length === 0, files, bytes, hasChecksums, problems: list })
  }
  if (problems.length > 0) {
    for (const problem of problems.slice(1)) cli.error(`error: ${problem.message}`)
    throw new MoefluxError('VERIFY_FAILED', problems[0].message, { cause: problems[0] })
  }
  if (options.json) return
  await cli.print(
    hasChecksums
      ? `${folder.location}: ${files} files, ${formatBytes(bytes)}, all as they should be\n`
      : `${folder.location}: shapes, sizes and scales are right; it has no moeflux.json to compare bytes with\n`,
  )
}
