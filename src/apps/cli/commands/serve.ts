// `moeflux serve`: the HTTP server for OpenAI and Anthropic clients, and the web UI.
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os'
import { type Command, Option } from 'commander'
import { UsageError } from '../../../base/errors.js'
import type { StoreOptions } from '../../../index.js'
import type { ImageHandling } from '../../server/serve.js'
import { action, type Cli } from '../action.js'
import { addDraftsOption, addModelOptions, type ModelOptions } from '../modelOptions.js'
import { addExamples, collectOption, durationOption, integerOption, positiveByteSizeOption } from '../optionValues.js'
import { stopAsked } from '../untilStopRequested.js'

interface ServeCommandOptions extends Omit<ModelOptions, 'model'> {
  readonly model?: string[]
  readonly pin?: string[]
  readonly keepAlive: number // ms
  readonly maxLoaded?: number
  readonly host: string
  readonly port: number
  readonly open?: boolean
  readonly apiKey?: string[]
  readonly cors?: string[]
  readonly allowHost?: string[]
  readonly name?: string
  readonly parallel: number
  readonly maxQueue: number
  readonly maxBody?: number
  readonly timeout: number
  readonly receiveTimeout: number
  readonly readerTimeout: number
  readonly snapshotDir?: string
  readonly images: ImageHandling
  readonly store?: string
  readonly storeScope: 'all' | 'key'
  readonly storeBudget: number // ms
  readonly storeNamespace: string
  readonly storeKv: 'f32' | 'bf16'
  readonly grace: number // ms
  readonly drain: number // ms
  readonly allowPull?: boolean
}

const LAST_MS = 4_000 // after the grace: whoever asked for the end waits 10 s, as a rule

export function registerServe(program: Command): void {
  const command = program
    .command('serve')
    .description('serve OpenAI, Anthropic and Ollama clients, and a web UI')
    .optionsGroup('Address:')
    .option('-p, --port <n>', 'port', integerOption(0, 65_535), 11_435)
    .option('--open', 'open the page in your browser')
    .option('--host <address>', 'where to listen; 0.0.0.0 for all networks (then set a key)', '127.0.0.1')
    .option('--api-key <key...>', 'ask clients for this key, or for one of these (or set MOEFLUX_API_KEY)')
    .option('--cors <origin...>', "let web pages of these origins call; '*' for all")
    .option('--allow-host <name...>', "more host names that clients may use; '*' for any")
    .optionsGroup('Model:')
    .option(
      '-m, --model <name|path>',
      'a model in the local store or on the hub, a folder or a GGUF file; repeatable (default: the whole store)',
      collectOption,
    )
    .option('-y, --yes', 'download a missing model without asking')
    .option('--name <id>', "the model's name for clients (default: its own)")
    .option('--pin <name>', 'with several models: load this one at the start and keep it; repeatable', collectOption)
    .addOption(
      new Option('--keep-alive <time>', 'with several models: how long an idle one stays in memory')
        .argParser(durationOption)
        .default(600_000, '10m'),
    )
    .option(
      '--max-loaded <n>',
      'with several models: how many to keep in memory (default: as many as fit)',
      integerOption(1),
    )
    .option(
      '--allow-pull',
      'let clients download models (default: if the whole store is offered, to this machine only)',
    )
    .option('--no-allow-pull', 'never let clients download models')
  addModelOptions(command, { model: false })
  addDraftsOption(command)
  command
    .optionsGroup('Requests:')
    .option('--parallel <n>', 'answers to compute at once', integerOption(1, 256), 8)
    .option('--max-queue <n>', 'requests that may wait; further ones get a 429', integerOption(0, 100_000), 64)
    .option('--max-body <size>', 'largest request body (default: 32MiB)', positiveByteSizeOption)
    .option('--timeout <seconds>', 'longest time for one answer', integerOption(1, 86_400), 3600)
    .option('--receive-timeout <seconds>', 'longest time for a request to arrive', integerOption(1, 3600), 60)
    .option('--reader-timeout <seconds>', 'cut off a client that stops reading', integerOption(1, 3600), 60)
    .addOption(
      new Option('--images <what>', 'images in messages: refuse them, or tell the model that it cannot see them')
        .choices(['refuse', 'describe-absent'])
        .default('refuse'),
    )
    .addOption(
      new Option('--grace <time>', 'how long running answers may take when the server is stopped')
        .argParser(durationOption)
        .default(5_000, '5s'),
    )
    .addOption(
      new Option('--drain <time>', 'part of the grace in which requests are still taken while /ready says no')
        .argParser(durationOption)
        .default(0, '0s'),
    )
    .optionsGroup('States of conversations:')
    .option('--snapshot-dir <folder>', 'keep states of conversations here, so that they survive a restart')
    .option('--store <url>', 'share states of conversations with other servers: redis://, rediss://, s3:// or a folder')
    .addOption(
      new Option('--store-scope <who>', 'who shares states: all clients, or those with the same key')
        .choices(['all', 'key'])
        .default('all'),
    )
    .addOption(
      new Option('--store-budget <time>', 'longest time that an answer may wait for the store')
        .argParser(durationOption)
        .default(200, '200ms'),
    )
    .option('--store-namespace <name>', 'name of the servers that share states in a store', 'moeflux')
    .addOption(
      new Option('--store-kv <kind>', 'store keys and values exactly, or rounded to half the size')
        .choices(['f32', 'bf16'])
        .default('f32'),
    )
  command.action(action(serveModel))
  addExamples(command, [
    ['moeflux serve', 'all models in the local store, and the built-in one, at http://127.0.0.1:11435'],
    ['moeflux serve --open', 'the same, with the page in your browser'],
    'moeflux serve --model ~/models/qwen --port 8080',
    ['moeflux serve --host 0.0.0.0 --api-key secret', 'for the network, with a key'],
  ])
}

async function serveModel(cli: Cli, options: ServeCommandOptions): Promise<void> {
  // Often a variable that is not set: whoever gives a key does not want an open server.
  if (options.apiKey?.includes('')) throw new UsageError('--api-key: the key is empty')
  const [{ openCliModel }, { serve }, { modelOffer, modelOffers, wantedModels }, { ServeHub }] = await Promise.all([
    import('../openCliModel.js'),
    import('../../server/serve.js'),
    import('../serveOffers.js'),
    import('../serveHub.js'),
  ])
  const { fileURLToPath } = await import('node:url')
  const apiKey = options.apiKey ?? keysOf(process.env.MOEFLUX_API_KEY)
  const wanted = await wantedModels(options.model)
  const isOne = wanted.length === 1
  if (options.name !== undefined && !isOne)
    throw new UsageError('--name works only with one model, and there are several')
  const { pin = [] } = options
  if (isOne && pin.length > 0) throw new UsageError('--pin: there is only one model, and it always stays')
  if (!isOne && pin.length >= (options.maxLoaded ?? wanted.length + 1)) {
    throw new UsageError('--pin: no room is left for the other models (raise --max-loaded)')
  }
  const model = isOne ? await openCliModel(cli, { ...options, model: wanted[0].place }) : null
  const modelOptions = { ...options, model: undefined }
  const hub = new ServeHub({
    places: new Map(
      await Promise.all(wanted.map(each => placeOf(each, isOne ? (options.name ?? model?.name) : undefined))),
    ),
    mayPull: options.allowPull ?? mayPullUnasked(options),
    offer: (name, place) => modelOffer(cli, name, place, modelOptions),
    onNotice: line => cli.notice(line),
  })
  try {
    const offered = model ?? (await modelOffers(cli, wanted, modelOptions, pin))
    const server = await serve(offered, {
      host: options.host,
      port: options.port,
      apiKey,
      corsOrigins: options.cors,
      allowedHosts: options.allowHost,
      modelId: options.name,
      parallel: options.parallel,
      maxQueue: options.maxQueue,
      maxBodyBytes: options.maxBody,
      requestTimeoutMs: options.timeout * 1000,
      receiveTimeoutMs: options.receiveTimeout * 1000,
      readerTimeoutMs: options.readerTimeout * 1000,
      store: stores(options),
      storeScope: options.storeScope,
      keepLoadedMs: options.keepAlive,
      maxLoaded: options.maxLoaded,
      drainMs: options.drain,
      images: options.images,
      hub,
      webFolder: fileURLToPath(new URL('../../web', import.meta.url)),
      onLog: line => cli.notice(`${new Date().toISOString()} ${line}`),
      onWarning: line => cli.notice(`${new Date().toISOString()} ${line}`),
    })
    const [url, ...networks] = listenAddresses(options.host, server.port, networkInterfaces())
    const names = options.name ?? model?.name ?? wanted.map(({ name }) => name).join(', ')
    const lines = [
      `the page is at ${url}`,
      `OpenAI: ${url}/v1`,
      `Anthropic and Ollama: ${url}`,
      ...networks.map(network => `from other machines: ${network}`),
      `${isOne ? 'model' : 'models'}: ${names}`,
    ]
    cli.notice(lines.join('\n')) // at once: programs wait for the first of them
    if (apiKey === undefined && !isLocal(options.host))
      cli.notice('warning: anyone who reaches this address can use the model; set --api-key')
    if (process.stderr.isTTY) cli.notice('Ctrl-C stops the server')
    if (options.open) (await import('../openBrowser.js')).openBrowser(cli, url)
    await stopAsked(cli.signal)
    cli.notice('stopping: running answers get a moment to finish')
    leaveInTime(cli, options.grace + LAST_MS)
    await server.stop(options.grace)
  } finally {
    await model?.close()
  }
}

/** The last resort, where something does not end. */
function leaveInTime(cli: Cli, ms: number): void {
  const leave = () => {
    cli.notice('not everything ended in time; leaving anyway')
    process.exit(1)
  }
  setTimeout(leave, Math.min(ms, 2 ** 31 - 1)).unref() // a longer time would be over at once
}

/** Several keys are separated by commas: a key may hold blanks. */
function keysOf(variable: string | undefined): string[] | undefined {
  const keys = (variable ?? '')
    .split(',')
    .map(key => key.trim())
    .filter(key => key !== '')
  return keys.length > 0 ? keys : undefined
}

/** The disk of this machine first, then what is shared with others. */
function stores(options: ServeCommandOptions): StoreOptions[] {
  const { snapshotDir, store, storeBudget: budgetMs, storeNamespace: namespace, storeKv: keysAndValues } = options
  const disk: StoreOptions[] = snapshotDir === undefined ? [] : [{ store: snapshotDir, writes: 'idle' }]
  if (store === undefined) return disk
  return [...disk, { store, writes: 'answer', budgetMs, namespace, keysAndValues }]
}

/** The name that clients know, and where the model is. */
async function placeOf({ name, place }: { name: string; place: string }, renamed?: string): Promise<[string, string]> {
  const { locateModel } = await import('../../../internal.js')
  const located = await locateModel(place).catch(() => null)
  return [renamed ?? name, located?.path ?? place]
}

/** Nobody but this machine's own user can ask, and nothing says that it should be these models alone. */
function mayPullUnasked({ host, model, cors, allowHost }: ServeCommandOptions): boolean {
  return isLocal(host) && model === undefined && cors === undefined && allowHost === undefined
}

function isLocal(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.')
}

/** The addresses at which a server can be opened: what it listens on may be no address, such as 0.0.0.0. Pure. */
type Interfaces = NodeJS.Dict<NetworkInterfaceInfo[]>

/** The address of this machine first, then those of its networks. */
export function listenAddresses(host: string, port: number, interfaces: Interfaces): string[] {
  const shown = (name: string) => `http://${name.includes(':') ? `[${name}]` : name}:${port}`
  const isAny = host === '0.0.0.0' || host === '::' || host === ''
  if (!isAny) return [shown(host)]
  const all = Object.values(interfaces).flatMap(addresses => addresses ?? [])
  // A page opens an address of version 4 as well where the server listens on all of version 6; link-local ones name no machine.
  const networks = all
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => shown(address))
  return [shown('127.0.0.1'), ...networks]
}
