// `moeflux pull`: downloads a model from a hub and packs it on the way into the local store.
import { type Command, Option } from 'commander'
import type { PullProgress } from '../../../index.js'
import { action, type Cli } from '../action.js'
import { addExamples, integerOption } from '../optionValues.js'

interface PullCommandOptions {
  readonly revision?: string
  readonly endpoint?: string
  readonly connections: number
  readonly bits?: string
  readonly groupSize?: string
  readonly experts2bit?: boolean
  readonly json?: boolean
}

export function registerPull(program: Command): void {
  const command = program
    .command('pull')
    .description('download a model from a hub and pack it for streaming')
    .argument(
      '<id>',
      "'owner/name' on the hub, 'owner/name:Q4_K_M' for a GGUF file, an address of the hub, or a short name (qwen3.6-35b); " +
        'HF_TOKEN is used if it is set',
    )
    .option('--revision <name>', 'branch, tag or commit (default: main)')
    .option('--endpoint <url>', 'a hub other than https://huggingface.co (or set HF_ENDPOINT)')
    .option('--connections <n>', 'parts of a file to download at once', integerOption(1, 64), 4)
    .addOption(
      new Option('--bits <bits>', 'how to store an unquantized model; 16 keeps it as it is (default: 4)').choices([
        '4',
        '8',
        '16',
      ]),
    )
    .addOption(new Option('--group-size <n>', 'weights that share a scale (default: 64)').choices(['32', '64', '128']))
    .option('--experts-2bit', 'write a second, smaller set of experts in 2 bits')
    .option('--json', 'print progress and the result as lines of JSON')
    .action(action(pullCommand))
  addExamples(command, [
    ['moeflux pull qwen3.5-4b', 'then: moeflux run -m qwen3.5-4b "Hello"'],
    ['moeflux pull unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M', 'a GGUF file; without the precision, you get a list'],
    ['moeflux pull Qwen/Qwen3.6-35B-A3B --bits 8', 'quantized on the way; if you stop it, run it again to resume'],
  ])
}

async function pullCommand(cli: Cli, name: string, options: PullCommandOptions): Promise<void> {
  const [{ findWellKnown, locateNamed, planPull }, { describePull }, { pullWithProgress }] = await Promise.all([
    import('../../../internal.js'),
    import('../findOrPull.js'),
    import('../pullWithProgress.js'),
  ])
  const { revision, endpoint, bits, groupSize, experts2bit } = options
  const isAsStored = [revision, bits, groupSize, experts2bit].every(option => option === undefined)
  const located = await locateNamed(name)
  if (located.path !== null && isAsStored) {
    const { stored, path } = located
    if (options.json) await cli.print(`${JSON.stringify({ model: stored?.name ?? name, folder: path, done: true })}\n`)
    cli.notice(stored === null ? `${name} is built in` : `${stored.name} is in the store: ${path}`)
    return cli.notice(nextCommand(name))
  }
  const hub = located.path === null ? located.hub : null
  const plan = await planPull(hub ?? name, { revision, endpoint, signal: cli.signal })
  const packing = {
    bits: bits === undefined ? undefined : (Number(bits) as 4 | 8 | 16),
    groupSize: groupSize === undefined ? undefined : (Number(groupSize) as 32 | 64 | 128),
    experts2bit,
  }
  if (located.path === null) {
    cli.notice(`${plan.name}:`)
    await describePull(cli, plan, located.unfinished?.bytes ?? 0, packing)
  }
  const download = { parallel: options.connections }
  const onProgress = options.json ? progressLines(cli) : undefined
  const result = await pullWithProgress(cli, plan, `moeflux pull ${name}`, { ...packing, download, onProgress })
  if (options.json) {
    const { metadata, folder, bytes, bytesReused } = result
    await cli.print(`${JSON.stringify({ model: metadata.model, folder, bytes, bytesReused, done: true })}\n`)
  }
  cli.notice(nextCommand(findWellKnown(name) === null ? result.metadata.model : name))
}

function nextCommand(name: string): string {
  return `next: moeflux run -m ${name} "Hello", or moeflux chat -m ${name}`
}

const LINE_MS = 200 // between lines of one phase

/** Progress for programs. */
function progressLines(cli: Cli): (progress: PullProgress) => void {
  let last = { phase: '', at: Number.NEGATIVE_INFINITY }
  return ({ phase, loaded, total }) => {
    const now = performance.now()
    if (phase === last.phase && loaded < total && now - last.at < LINE_MS) return
    last = { phase, at: now }
    void cli.print(`${JSON.stringify({ phase, loaded, total })}\n`).catch(() => {}) // a reader that left ends the command
  }
}
