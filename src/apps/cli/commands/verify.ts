// `moeflux verify`: reads every byte of a model that can be compared with something, and says which could not.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { ModelNotFoundError, MoefluxError } from '../../../base/errors.js'
import type { Comparison, VerifyReport } from '../../../internal.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples } from '../optionValues.js'

/** Nothing wrong was found, but there are files that nothing says anything about. */
const EXIT_UNCOMPARED = 3

export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description('check every byte of a model against its checksums')
    .argument('<model>', 'a model in the local store, or a folder: packed, MLX or Hugging Face')
    .option('--json', 'print the result as JSON')
    .action(action(verify))
    .addHelpText(
      'after',
      '\nExit codes: 0 all files of the model match their checksums, 1 something is wrong,\n' +
        '            3 found nothing wrong, but some files have no checksum.\n',
    )
  addExamples(command, ['moeflux verify ~/models/a3b'])
}

async function verify(cli: Cli, model: string, options: { json?: boolean }): Promise<number> {
  const { findModel } = await import('../../../index.js')
  const { isGgufFile, MANIFEST_NAME, openNodeFolder, verifyModel } = await import('../../../internal.js')
  const path = await findModel(model)
  if (await isGgufFile(path)) {
    const detail = 'is a GGUF file, which has no checksums: convert it, and verify the folder that comes of it'
    throw new ModelNotFoundError(path, detail)
  }
  // The names of a download's files come from its index, and must not lead anywhere else.
  const isPacked = existsSync(join(path, MANIFEST_NAME))
  const folder = await openNodeFolder(path, { links: isPacked ? 'any' : 'inside' })
  const bar = cli.progressBar()
  const report = await verifyModel(folder, {
    signal: cli.signal,
    onProgress: progress => bar.update(progress),
  }).finally(() => bar.clear())
  const { problems, uncompared } = report
  if (options.json) await cli.printJson(jsonOf(folder.location, report))
  else if (problems.length === 0) await cli.print(textOf(folder.location, report))
  if (problems.length > 0) {
    for (const problem of problems.slice(1)) cli.error(`error: ${problem.message}`)
    throw new MoefluxError('VERIFY_FAILED', problems[0].message, { cause: problems[0] })
  }
  return uncompared.length > 0 ? EXIT_UNCOMPARED : 0
}

function jsonOf(folder: string, { problems, ...report }: VerifyReport): object {
  const list = problems.map(({ code, message }) => ({ code, message }))
  const ok = list.length === 0
  return { folder, ok, complete: ok && report.uncompared.length === 0, ...report, problems: list }
}

const WORDS: Record<Comparison, string> = {
  sha256: 'the SHA-256 that moeflux.json lists',
  blocks: 'the checksums of their blocks',
  hub: "the names that the hub's cache gave them",
}

function textOf(folder: string, { compared, uncompared, extra }: VerifyReport): string {
  const lines: string[] = []
  const isComplete = uncompared.length === 0
  lines.push(
    isComplete
      ? `${folder}: all ${compared.length} files of the model are intact`
      : `${folder}: nothing wrong was found, but ${countOf(uncompared)} could not be compared with anything`,
  )
  for (const way of Object.keys(WORDS) as Comparison[]) {
    const files = compared.filter(file => file.with === way)
    const bytes = files.reduce((sum, { size }) => sum + size, 0)
    if (files.length > 0) lines.push(`  compared: ${countOf(files)}, ${formatBytes(bytes)}, with ${WORDS[way]}`)
  }
  for (const { name, reason, looked } of uncompared) {
    lines.push(`  not compared: ${name}: ${reason}${looked === null ? '' : `; ${looked}`}`)
  }
  if (extra.length > 0) lines.push(`  not part of the model, and not checked: ${extra.join(', ')}`)
  return `${lines.join('\n')}\n`
}

function countOf({ length }: { readonly length: number }): string {
  return `${length} ${length === 1 ? 'file' : 'files'}`
}
