// The model that a name means, brought from the hub where it is not here: after a look at what that takes and what to
// expect of it on this machine. At a terminal it asks first; elsewhere only --yes lets it download anything.
import { createInterface } from 'node:readline/promises'
import { DiskFullError } from '../../base/errors.js'
import {
  hubReference,
  isRemote,
  locateModel,
  notFound,
  type PackingOptions,
  type PullPlan,
  planPull,
  storeRoot,
} from '../../internal.js'
import { type Cli, Interrupted } from './action.js'
import { formatBytes, formatDuration, formatFields, threeDigits } from './format.js'
import { thisMachine } from './machine.js'
import { forecastPull } from './pullForecast.js'
import { pullWithProgress } from './pullWithProgress.js'

const COMMON_LINE = 100e6 / 8 // bytes per second

/** The path of the model. `yes`: pull without asking. */
export async function findOrPull(cli: Cli, name: string, yes: boolean): Promise<string> {
  if (isPackedAddress(name)) return name
  const located = await locateModel(name)
  if (located.path !== null) return located.path
  const { hub, unfinished } = located
  if (hub === null) throw notFound(name, located)
  const canAsk = process.stdin.isTTY && process.stderr.isTTY && !cli.quiet
  if (!(yes || canAsk)) throw notFound(name, located, '--yes')
  const plan = await planPull(hub, { signal: cli.signal })
  const isHere = unfinished === null ? 'is not downloaded yet' : 'is partly downloaded'
  cli.notice(`${plan.name === name ? name : `${name} is ${plan.name}, which`} ${isHere}:`)
  await describePull(cli, plan, unfinished?.bytes ?? 0)
  if (!yes && !(await agrees(cli, unfinished === null ? 'Download it now?' : 'Resume the download now?'))) {
    throw notFound(name, located)
  }
  return (await pullWithProgress(cli, plan, `moeflux pull ${hub.id}`)).folder
}

/** A packed model on a server; an address of a model's page on the hub is none. */
function isPackedAddress(name: string): boolean {
  return isRemote(name) && (/\/resolve\//.test(name) || hubReference(name) === null)
}

/** What a pull takes and what to expect of the model here. Refuses one that the disk has no room for. */
export async function describePull(cli: Cli, plan: PullPlan, there: number, packing?: PackingOptions): Promise<void> {
  const { leftBytes, size, neededBytes, freeBytes, estimate } = await forecastPull(plan, there, cli.signal, packing)
  const { freeMemory, totalMemory } = thisMachine()
  const { fits, tokensPerSecond, leastMemory } = estimate
  const speed = `up to ${threeDigits(tokensPerSecond)} tok/s on the CPU`
  const words = {
    everything: `fits in memory: ${speed}`,
    streaming: `streams experts from disk: ${speed}`,
    no: `needs ${formatBytes(leastMemory)} of memory, ${formatBytes(freeMemory)} is free`,
  }
  const root = storeRoot()
  const more = there > 0 ? ' more' : ''
  const room = freeBytes === null ? '' : `; ${formatBytes(freeBytes)} free in ${root}`
  const fields: [string, string][] = [
    ['download', `${formatBytes(leftBytes)}${more}, ${formatDuration(leftBytes / COMMON_LINE)} at 100 Mbit/s`],
    ['disk', `${formatBytes(neededBytes)}${more} at most, ${formatBytes(size.packedBytes)} packed${room}`],
    ['here', `${words[fits]} (${formatBytes(freeMemory)} of ${formatBytes(totalMemory)} free)`],
  ]
  if (!cli.quiet) cli.errorText(formatFields(fields, cli.errorWidth))
  if (freeBytes !== null && freeBytes < neededBytes) {
    throw new DiskFullError(`${root} (MOEFLUX_HOME sets another place)`, neededBytes, freeBytes)
  }
}

/** `usual`: what Enter alone means. */
export async function agrees(cli: Cli, question: string, usual = true): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  try {
    // The line editor takes Ctrl-C for itself.
    lines.once('SIGINT', () => process.emit('SIGINT'))
    const answer = await lines.question(`${question} ${usual ? '[Y/n]' : '[y/N]'} `, { signal: cli.signal })
    return answer.trim() === '' ? usual : /^(y|yes)$/i.test(answer.trim())
  } catch (error) {
    if (cli.signal.aborted) throw new Interrupted()
    throw error
  } finally {
    lines.close()
  }
}
