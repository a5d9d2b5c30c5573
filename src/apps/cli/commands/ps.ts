// `moeflux ps`: the models that a running server has in memory.
import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import { formatBytes, formatDuration, formatInteger, formatTable } from '../format.js'
import { addExamples } from '../optionValues.js'
import { addServerOptions, type LoadedModel, loadedModels, type ServerOptions } from '../serverClient.js'

const ALWAYS_MS = 100 * 365 * 86_400_000 // what never leaves is said to leave in 2318

export function registerPs(program: Command): void {
  const command = program.command('ps').description('list the models that a running server has in memory')
  addServerOptions(command).option('--json', 'print the list as JSON').action(action(ps))
  addExamples(command, ['moeflux ps', ['moeflux ps --url http://box:8080', 'another server']])
}

async function ps(cli: Cli, options: ServerOptions & { readonly json?: boolean }): Promise<void> {
  const models = await loadedModels(cli, options)
  if (options.json) return await cli.printJson(models)
  if (models.length === 0) return cli.notice(`no model is in memory at ${options.url}`)
  const columns = [
    { title: 'NAME' },
    { title: 'SIZE', align: 'right' },
    { title: 'CONTEXT', align: 'right' },
    { title: 'UNTIL' },
  ] as const
  await cli.print(formatTable(columns, models.map(row), cli.width))
}

function row({ name, size, context_length: context, expires_at: end }: LoadedModel): string[] {
  const leftMs = end === undefined ? Number.POSITIVE_INFINITY : Date.parse(end) - Date.now()
  const until = leftMs < ALWAYS_MS ? `in ${formatDuration(Math.max(0, leftMs / 1000))}` : 'the server stops'
  return [name, size > 0 ? formatBytes(size) : '-', context === undefined ? '-' : formatInteger(context), until]
}
