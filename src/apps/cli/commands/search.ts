// `moeflux search`: models of the hub whose names hold some words, and whether they run here.
import type { Command } from 'commander'
import { UsageError } from '../../../base/errors.js'
import type { FoundModel, WellKnownModel } from '../../../internal.js'
import { action, type Cli } from '../action.js'
import { formatInteger, formatTable } from '../format.js'
import { addExamples, collectOption, integerOption } from '../optionValues.js'

interface SearchCommandOptions {
  readonly limit: number
  readonly filter?: readonly string[]
  readonly endpoint?: string
  readonly json?: boolean
}

export function registerSearch(program: Command): void {
  const command = program
    .command('search')
    .description('find models on the hub')
    .argument('<words...>', 'words of their names; HF_TOKEN is used if it is set')
    .option('--limit <n>', 'how many to list, those that are downloaded most', integerOption(1, 100), 20)
    .option('--filter <tag>', 'only models with this tag of the hub: gguf, mlx, …; repeatable', collectOption)
    .option('--endpoint <url>', 'a hub other than https://huggingface.co (or set HF_ENDPOINT)')
    .option('--json', 'print the list as JSON')
    .action(action(search))
  addExamples(command, ['moeflux search qwen3.5 4b', ['moeflux search --filter gguf gpt-oss', 'GGUF files only']])
}

async function search(cli: Cli, words: string[], options: SearchCommandOptions): Promise<void> {
  if (words.every(word => word.trim() === '')) throw new UsageError('give words to search for')
  const { searchHub, WELL_KNOWN_MODELS } = await import('../../../internal.js')
  const { limit, filter, endpoint } = options
  const found = await searchHub(words.join(' '), { limit, filter, endpoint, signal: cli.signal })
  if (options.json) return await cli.printJson(found)
  if (found.length === 0) cli.notice('the hub has no model with all of these words in its name')
  else await cli.print(tableOf(found, cli.width))
  const known = WELL_KNOWN_MODELS.filter(model => holdsAll(model, words)).map(({ names }) => names[0])
  if (known.length > 0) cli.notice(`short names: ${known.join(', ')}`)
  const runs = found.find(model => model.runs === true)
  if (runs !== undefined) cli.notice(pullHint(runs))
}

function tableOf(found: readonly FoundModel[], width: number): string {
  return formatTable(
    [{ title: 'MODEL' }, { title: 'DOWNLOADS', align: 'right' }, { title: 'RUNS' }],
    found.map(model => [model.id, model.downloads === null ? '-' : formatInteger(model.downloads), runsText(model)]),
    width,
  )
}

function runsText({ runs, reason, isGguf, needsToken }: FoundModel): string {
  if (runs === false) return `no: ${reason}`
  return [runs ? 'yes' : 'not known', ...(isGguf ? ['GGUF'] : []), ...(needsToken ? ['needs a token'] : [])].join(', ')
}

/** Of GGUF files one has to be named. */
function pullHint({ id, isGguf }: FoundModel): string {
  if (!isGguf) return `next: moeflux pull ${id}`
  return `next: moeflux pull ${id}:Q4_K_M, or another precision; without one, you get a list of them`
}

function holdsAll({ names, title }: WellKnownModel, words: readonly string[]): boolean {
  const text = [...names, title].join(' ').toLowerCase()
  return words.every(word => text.includes(word.toLowerCase()))
}
