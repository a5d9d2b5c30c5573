// `moeflux web`: writes the web UI as a folder for any static host, with models that run in the visitor's tab.
import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples } from '../optionValues.js'

interface WebCommandOptions {
  readonly out: string
  readonly model?: string[]
}

export function registerWeb(program: Command): void {
  const command = program
    .command('web')
    .description('write the web UI and models as a site that needs no server of ours')
    .requiredOption('-o, --out <folder>', 'where to write; what is there already is overwritten')
    .option('-m, --model <model...>', 'models that the page can run in the tab (default: the built-in one)')
  command.action(action(web))
  addExamples(command, [
    ['moeflux web --out site', 'then serve the folder with any web server that answers range requests'],
    'moeflux web --out site --model ~/models/a3b',
  ])
}

async function web(cli: Cli, options: WebCommandOptions): Promise<void> {
  const { fileURLToPath } = await import('node:url')
  const { DEMO_NAME, findModel } = await import('../../storage/modelStore.js')
  const { preparePacked } = await import('../../storage/preparePacked.js')
  const { writeSite } = await import('../writeSite.js')
  const { signal } = cli
  const bar = cli.progressBar()
  const onProgress = (progress: { phase: string; loaded: number; total: number }) => bar.update(progress)
  try {
    const folders: string[] = []
    for (const name of options.model ?? [DEMO_NAME]) {
      const onNotice = (line: string) => cli.notice(line)
      folders.push(await preparePacked(await findModel(name), { signal, onProgress, onNotice }))
    }
    const page = fileURLToPath(new URL('../../web', import.meta.url))
    const { models } = await writeSite(page, folders, options.out, { signal, onProgress })
    bar.clear()
    const sizes = models.map(
      ({ name, residentBytes, expertBytes }) => `${name} (${formatBytes(residentBytes + expertBytes)})`,
    )
    cli.notice(`wrote ${options.out} with ${sizes.join(', ')}: serve it over HTTPS, or at localhost`)
  } finally {
    bar.clear()
  }
}
