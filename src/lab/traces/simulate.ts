// What `moeflux simulate` does: reads traces, has them replayed against one tier or three, and prints a table, JSON or CSV.
import type { Cli } from '../../apps/cli/action.js'
import { formatBytes, formatCsv, formatInteger, formatPercent, wrapWords } from '../../apps/cli/format.js'
import { UsageError } from '../../base/errors.js'
import { readRegular } from '../../base/regularFile.js'
import { measureScratchDisk } from '../../experts/readers/nodeDiskSpeed.js'
import { storeRoot } from '../../files/models/modelStore.js'
import { decodeTrace, joinTraces, type RoutingTrace } from './routingTrace.js'
import type { ReplaySpeeds } from './simulatedTable.js'
import { checkAgainstEngine, type EngineCheck, simulateOneTier } from './simulateOneTier.js'
import type { SimulateCommandOptions } from './simulateOptions.js'
import { simulateThreeTiers } from './simulateThreeTiers.js'

export async function simulate(cli: Cli, files: readonly string[], options: SimulateCommandOptions): Promise<void> {
  checkOptions(options)
  const traces = await Promise.all(files.map(async file => decodeTrace(await readRegular(file), file)))
  const trace = joinTraces(traces)
  if (trace === null) throw new UsageError('the traces are of different models')
  const speeds: ReplaySpeeds = {
    computeSeconds: options.computeMs === undefined ? trace.engine.computeSecondsPerToken : options.computeMs / 1000,
    diskBytesPerSecond: options.disk ?? (await measureDisk(cli, trace)),
  }
  const result = options.gpu
    ? simulateThreeTiers(trace, { ...options, gpu: options.gpu }, speeds, cli)
    : simulateOneTier(trace, options.budgets, speeds, cli)
  // The engine's counts are those of one recording, begun with an empty cache.
  const engine = traces.length === 1 ? checkAgainstEngine(trace) : null
  const { rows, facts, table } = result
  if (options.json) await cli.printJson({ model: trace.model, ...facts, engine, rows })
  else if (options.csv) await cli.print(formatCsv(rows))
  else await cli.print(`${head(trace, result.assumed, engine, cli.width)}\n${table}`)
}

function checkOptions(options: SimulateCommandOptions): void {
  if (options.csv && options.json) throw new UsageError('give either --csv or --json')
  if (options.gpu && options.budgets) throw new UsageError('give either --budgets, for one tier, or --gpu and --memory')
  if (options.gpu) return
  for (const name of ['memory', 'cpu', 'upload', 'waitUs', 'promote'] as const) {
    const flag = name === 'waitUs' ? 'wait-us' : name
    if (options[name] !== undefined) throw new UsageError(`--${flag} needs --gpu`)
  }
}

async function measureDisk(cli: Cli, { expertBytes }: RoutingTrace): Promise<number> {
  const { speeds } = await measureScratchDisk(storeRoot(), expertBytes, [8], cli.signal)
  return speeds[0].bytesPerSecond
}

function head(trace: RoutingTrace, assumed: string, engine: EngineCheck | null, width: number): string {
  const tokens = trace.steps.reduce((sum, step) => sum + step.tokens, 0)
  const lines = [
    `${trace.model}: ${formatInteger(tokens)} tokens, ${trace.layers} layers of ${trace.experts} experts of ` +
      `${formatBytes(trace.expertBytes)}, ${trace.expertsPerToken} per token`,
    assumed,
  ]
  if (engine) {
    lines.push(
      `recorded with ${formatInteger(engine.slots)} slots (${engine.policy}): ` +
        `${formatPercent(engine.countedHitRate)} hits counted, ${formatPercent(engine.simulatedHitRate)} simulated`,
    )
  }
  return lines
    .flatMap(text => text.split('\n'))
    .flatMap(line => wrapWords(line, width))
    .map(line => `${line}\n`)
    .join('')
}
