// What `moeflux inspect` does: plans a model for this machine or another one. Opens no backend; of the weights it reads only some
// experts, to see how fast the disk is.
import { GPU_WEIGHTS, PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../../base/defaults.js'
import {
  availableMemory,
  countWithin,
  estimateModel,
  expertBytes,
  fourBitBytes,
  freeSpace,
  locateModel,
  type MachineRates,
  measureDisk,
  missingBytes,
  notFound,
  planPull,
  preparePacked,
  presets,
  sizePull,
  storeRoot,
  TWO_BIT,
  usableMemory,
  type WellKnownModel,
} from '../../internal.js'
import type { Cli } from './action.js'
import { estimateGpu } from './gpuEstimate.js'
import { thisMachine } from './machine.js'
import { type ModelReport, type ModelSubject, reportJson, reportText } from './modelReport.js'
import { costsOf, readPackedBytes } from './packedBytes.js'

export interface InspectOptions {
  readonly json?: boolean
  readonly context?: number
  readonly expertsPerToken?: number
  readonly memory?: number
  readonly gpu?: number
  readonly gpuSpeed?: number
  readonly readSpeed?: number
  readonly computeSpeed?: number
}

const READS_AT_ONCE = 8
const MEASURE_SECONDS = 1

export async function inspect(cli: Cli, model: string, options: InspectOptions): Promise<void> {
  const subject = await findSubject(cli, model)
  const { config } = subject
  const longest = config.maxPositionEmbeddings
  const context = countWithin('contextLength', options.context ?? Math.min(PLANNED_TOKENS, longest), longest)
  const experts = countWithin('expertsPerToken', options.expertsPerToken, config.expertsPerToken)
  const machine = thisMachine()
  const measured = options.readSpeed === undefined ? await measureReads(subject, cli.signal) : null
  const rates: MachineRates = {
    memory: options.memory === undefined ? machine.freeMemory : usableMemory(options.memory),
    weightsPerSecond: options.computeSpeed ?? WEIGHTS_PER_THREAD * machine.threads,
    readsPerSecond: options.readSpeed ?? measured ?? READ_SPEED,
  }
  const gpuOf = (gpuBytes: number) => {
    const { memory, weightsPerSecond, readsPerSecond } = rates
    const given = { bytes: memory, ceiling: memory, limit: memory, limitedBy: 'machine' as const }
    const facts = options.memory === undefined ? availableMemory() : given
    const gpuWeightsPerSecond = options.gpuSpeed ?? GPU_WEIGHTS
    const { threads: cores } = machine
    const all = { gpuBytes, memory: facts, cores, gpuWeightsPerSecond, weightsPerSecond, readsPerSecond }
    return estimateGpu(config, subject.bytes, all, { tokens: context, sequences: 1, isContext: true }, experts)
  }
  const estimate = estimateModel(config, subject.bytes, rates, context, experts)
  const gpu = options.gpu === undefined ? null : gpuOf(options.gpu)
  const readSpeedFrom = options.readSpeed !== undefined ? 'given' : measured !== null ? 'measured' : 'assumed'
  const report: ModelReport = {
    subject,
    machine,
    totalMemory: options.memory ?? machine.totalMemory,
    disk: { folder: storeRoot(), free: await freeSpace(storeRoot()) },
    isThisMachine: options.memory === undefined,
    rates,
    readSpeedFrom,
    estimate,
    gpu,
    expertsPerToken: experts,
  }
  if (options.json) await cli.printJson(reportJson(report))
  else await cli.print(reportText(report, text => cli.bold(text), cli.width))
}

/** A model that is here before one that is only known: its own tables are exact. */
async function findSubject(cli: Cli, model: string): Promise<ModelSubject> {
  const located = await locateModel(model)
  if (located.path !== null) return folderSubject(cli, located.path)
  const there = located.unfinished?.bytes ?? 0
  if (located.known !== null) return knownSubject(located.known, there)
  if (located.hub === null) throw notFound(model, located)
  const plan = await planPull(located.hub, { signal: cli.signal })
  const size = await sizePull(plan, {}, cli.signal)
  const { config, bytes } = size
  return {
    name: plan.name,
    source: plan.client.endpoint,
    absent: { name: plan.name, diskBytes: missingBytes(size, there) },
    config,
    bytes,
    expert2Bit: expertBytes(config, TWO_BIT),
  }
}

/** Of a model on the hub that was not looked at: its shards are not known, and what it takes besides is not counted. */
function knownSubject({ names, title, preset }: WellKnownModel, there: number): ModelSubject {
  const { config } = presets[preset]
  const bytes = fourBitBytes(config)
  return {
    name: title,
    source: `preset ${preset}, in 4 bit`,
    absent: { name: names[0], diskBytes: Math.max(0, bytes.allExperts + bytes.resident - there) },
    config,
    bytes,
    expert2Bit: expertBytes(config, TWO_BIT),
  }
}

async function folderSubject(cli: Cli, path: string): Promise<ModelSubject> {
  const bar = cli.progressBar()
  const folder = await preparePacked(path, {
    onNotice: line => cli.notice(line),
    onProgress: progress => bar.update(progress),
    signal: cli.signal,
  }).finally(() => bar.clear())
  const { name, location, config, bytes, expertFiles } = await readPackedBytes(folder)
  return {
    name,
    source: location,
    config,
    bytes,
    expert2Bit: expertBytes(config, TWO_BIT),
    expertFiles,
    relaid: await costsOf(path),
  }
}

/** What the disk gives at random places, one expert a read; null where that cannot be known past the page cache. */
async function measureReads(subject: ModelSubject, signal: AbortSignal): Promise<number | null> {
  const { expertFiles, config, bytes } = subject
  if (expertFiles === undefined || expertFiles.length === 0) return null
  const { direct, speeds } = await measureDisk({
    files: expertFiles,
    fileSize: config.numExperts * bytes.expert,
    readBytes: bytes.expert,
    depths: [READS_AT_ONCE],
    seconds: MEASURE_SECONDS,
    signal,
  })
  return direct ? speeds[0].bytesPerSecond : null
}
