// `moeflux rm`: removes models from the local store. At a terminal it asks first; in scripts it does not, as `ollama rm`.
import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples } from '../optionValues.js'

interface RmOptions {
  readonly yes?: boolean
}

export function registerRm(program: Command): void {
  const command = program
    .command('rm')
    .description('remove models from the local store')
    .argument('<model...>', "names or ids, as 'moeflux list' shows them")
    .option('-y, --yes', 'do not ask')
    .action(action(remove))
  addExamples(command, [
    'moeflux rm Qwen3.6-35B-A3B-4bit',
    ['moeflux rm --yes qwen3.6-35b qwen3-30b', 'several, without a question at the terminal'],
  ])
}

async function remove(cli: Cli, models: string[], { yes }: RmOptions): Promise<void> {
  const { removeModel } = await import('../../../index.js')
  for (const model of models) {
    if (!yes && process.stdin.isTTY && process.stderr.isTTY && !(await isMeant(cli, model))) {
      cli.notice(`${model} stays`)
      continue
    }
    const { id, bytes } = await removeModel(model)
    cli.notice(`removed ${id} (${formatBytes(bytes)})`)
  }
}

async function isMeant(cli: Cli, nameOrId: string): Promise<boolean> {
  const [{ storedModelNamed }, { agrees }] = await Promise.all([
    import('../../../internal.js'),
    import('../findOrPull.js'),
  ])
  const { name, bytes } = await storedModelNamed(nameOrId)
  return await agrees(cli, `Remove ${name} (${formatBytes(bytes)})?`, false)
}
