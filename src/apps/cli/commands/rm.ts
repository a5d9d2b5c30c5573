// `moeflux rm`: removes models from the local store.
import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples } from '../optionValues.js'

export function registerRm(program: Command): void {
  const command = program
    .command('rm')
    .description('remove models from the local store')
    .argument('<model...>', "names or ids, as 'moeflux list' shows them")
    .action(action(remove))
  addExamples(command, ['moeflux rm Qwen3.6-35B-A3B-4bit'])
}

async function remove(cli: Cli, models: string[]): Promise<void> {
  const { removeModel } = await import('../../../index.js')
  for (const model of models) {
    const { id, bytes } = await removeModel(model)
    cli.notice(`removed ${id} (${formatBytes(bytes)})`)
  }
}
