// `moeflux web`: writes the web UI as a folder for any static host, with models that run in the visitor's tab.
import type { Command } from 'commander'
import { UsageError } from '../../../base/errors.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { addExamples, integerOption } from '../optionValues.js'
import { stopAsked } from '../untilStopRequested.js'

interface WebCommandOptions {
  readonly out?: string
  readonly model?: string[]
  readonly yes?: boolean
  readonly preview?: boolean
  readonly port?: number
}

export function registerWeb(program: Command): void {
  const command = program
    .command('web')
    .description('write the web UI and models as a static site')
    .option('-o, --out <folder>', 'where to write; existing files are overwritten')
    .option('-m, --model <model...>', 'models that the page can run in the tab (default: the built-in one)')
    .option('-y, --yes', 'download a missing model without asking')
    .option('--preview', 'serve the site on this machine until Ctrl-C; without --out, nothing is kept')
    .option('-p, --port <n>', 'port of --preview (default: any free one)', integerOption(0, 65_535))
  command.action(action(web))
  addExamples(command, [
    ['moeflux web --out site', 'then serve the folder with any web server that answers range requests'],
    ['moeflux web --out site --model demo qwen3.5-4b', 'the built-in model, and a small one that answers questions'],
    ['moeflux web --preview', 'try it first'],
  ])
}

async function web(cli: Cli, options: WebCommandOptions): Promise<void> {
  const { out, preview } = options
  if (out === undefined && !preview) throw new UsageError('give --out FOLDER, or --preview to try the site')
  if (options.port !== undefined && !preview) throw new UsageError('--port needs --preview')
  if (!preview) return await writeTo(out as string, cli, options)
  const { withSitePreview } = await import('../../server/previewSite.js')
  await withSitePreview(out, options.port ?? 0, {
    write: folder => writeTo(folder, cli, options),
    async whileServed(url) {
      cli.notice(`the site is at ${url} (Ctrl-C stops it)`)
      await stopAsked(cli.signal)
    },
  })
}

async function writeTo(folder: string, cli: Cli, options: WebCommandOptions): Promise<void> {
  const { fileURLToPath } = await import('node:url')
  const { DEMO_NAME, preparePacked } = await import('../../../internal.js')
  const { findOrPull } = await import('../findOrPull.js')
  const { writeSite } = await import('../writeSite.js')
  const { signal } = cli
  const bar = cli.progressBar()
  const onProgress = (progress: { phase: string; loaded: number; total: number }) => bar.update(progress)
  try {
    const folders: string[] = []
    for (const name of options.model ?? [DEMO_NAME]) {
      const onNotice = (line: string) => cli.notice(line)
      folders.push(
        await preparePacked(await findOrPull(cli, name, options.yes === true), { signal, onProgress, onNotice }),
      )
    }
    const page = fileURLToPath(new URL('../../web', import.meta.url))
    const { models } = await writeSite(page, folders, folder, { signal, onProgress })
    bar.clear()
    const sizes = models.map(
      ({ name, residentBytes, expertBytes }) => `${name} (${formatBytes(residentBytes + expertBytes)})`,
    )
    const advice = options.preview ? '' : ': serve it over HTTPS, or at localhost'
    cli.notice(`wrote ${folder} with ${sizes.join(', ')}${advice}`)
  } finally {
    bar.clear()
  }
}
