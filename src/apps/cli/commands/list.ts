// `moeflux list`: the models of the local store.

import type { Command } from 'commander'
import type { ExpertTables } from '../../../internal.js'
import { action, type Cli } from '../action.js'
import { formatBytes, formatTable } from '../format.js'
import { addExamples } from '../optionValues.js'

export function registerList(program: Command): void {
  const command = program
    .command('list')
    .alias('ls')
    .description('list the models in the local store')
    .option('--json', 'print the list as JSON')
    .action(action(list))
  addExamples(command, ['moeflux list', ['MOEFLUX_HOME=/data/moeflux moeflux list', 'a store somewhere else']])
}

async function list(cli: Cli, options: { json?: boolean }): Promise<void> {
  const { listModels } = await import('../../../index.js')
  const { storeRoot, SUGGESTED_MODEL, WELL_KNOWN_MODELS } = await import('../../../internal.js')
  const root = storeRoot()
  const models = await listModels(root)
  if (options.json) {
    await cli.printJson(
      models.map(({ id, name, folder, bytes, state, metadata }) => ({
        id,
        name,
        folder,
        bytes,
        state,
        bits: expertBits(metadata?.experts.get('packed_experts')),
        experts2bit: metadata?.options.experts2bit ?? false,
      })),
    )
    return
  }
  if (models.length === 0) {
    cli.notice(`no models in ${root} yet; without --model the built-in demo is used`)
    cli.notice(`next: moeflux pull ${SUGGESTED_MODEL}`)
    cli.notice(
      `well-known: ${WELL_KNOWN_MODELS.map(({ names }) => names[0]).join(', ')}; or any 'owner/name' of the hub`,
    )
    return
  }
  const count = (name: string) => models.filter(model => model.name === name).length
  const rows = models.map(({ id, name, bytes, state, metadata }) => {
    const bits = expertBits(metadata?.experts.get('packed_experts'))
    const extra = metadata?.options.experts2bit ? ' + 2' : ''
    return [
      count(name) > 1 ? id : name,
      bits === null ? '-' : `${bits}${extra}`,
      formatBytes(bytes),
      state === 'ready' ? '' : state,
    ]
  })
  const unfinished = models.find(({ state, shelf }) => state === 'unfinished' && shelf === 'models')
  await cli.print(
    formatTable(
      [{ title: 'NAME' }, { title: 'BITS', align: 'right' }, { title: 'SIZE', align: 'right' }, { title: '' }],
      rows,
      cli.width,
    ),
  )
  if (unfinished)
    cli.notice(`'moeflux pull ${unfinished.name}' resumes an unfinished download, 'moeflux rm' removes it`)
}

/** Bits of the experts' weights: one number, or null where they differ or are not known. */
function expertBits(tables: ExpertTables | undefined): number | null {
  const bits = new Set(
    tables
      ?.flat()
      .filter(part => part.kind === 'weight')
      .map(part => part.bits),
  )
  return bits.size === 1 ? [...bits][0] : null
}
