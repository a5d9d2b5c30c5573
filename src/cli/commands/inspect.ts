// `moeflux inspect`: a model's shapes and sizes, what of it fits this machine, and the speed to expect. Opens no backend;
// of the weights it reads only some experts, to see how fast the disk is.
import type { Command } from 'commander'
import { PLANNED_TOKENS } from '../../compute/backend.js'
import { countWithin } from '../../engine/countWithin.js'
import { availableMemory } from '../../experts/nodeMemory.js'
import { estimateModel, fourBitBytes, type MachineRates, usableMemory } from '../../model/estimate.js'
import { type PresetName, presetNames, presets } from '../../model/presets.js'
import { expertBytes, TWO_BIT } from '../../model/sizes.js'
import { findWellKnown, WELL_KNOWN_MODELS } from '../../model/wellKnownModels.js'
import { freeSpace } from '../../storage/diskFull.js'
import { storeRoot } from '../../storage/modelStore.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { estimateGpu } from '../gpuEstimate.js'
import { thisMachine } from '../machine.js'
import { type ModelReport, type ModelSubject, reportJson, reportText } from '../modelReport.js'
import { addExamples, byteSizeOption, integerOption, positiveByteSizeOption } from '../optionValues.js'
import { costsOf } from '../relaidTypes.js'

interface InspectOptions {
  readonly json?: boolean
  readonly context?: number
  readonly expertsPerToken?: number
  readonly memory?: number
  readonly gpu?: number
  readonly gpuSpeed?: number
  readonly readSpeed?: number
  readonly computeSpeed?: number
}

/** Weights that one thread of the wasm backend gets through per second; measured on a server core. */
export const WEIGHTS_PER_THREAD = 6e9
/** The same for a GPU of the middle: a part of what its memory gives, since a token's products are small. */
export const GPU_WEIGHTS = 200e9
/** Random reads of one expert, eight at a time, from a good NVMe disk. */
export const READ_SPEED = 2.5e9
const READS_AT_ONCE = 8
const MEASURE_SECONDS = 1

export function registerInspect(program: Command): void {
  const command = program
    .command('inspect')
    .description("show a model's shapes and sizes, what fits this machine, and the speed to expect")
    .argument('<model>', `a model of the local store, a folder, a GGUF file, or a preset: ${presetNames.join(', ')}`)
    .option('--json', 'print everything as JSON')
    .option(
      '--context <tokens>',
      `length of the conversation to plan for (default: ${PLANNED_TOKENS}, or what the model allows)`,
      integerOption(1),
    )
    .option('--experts-per-token <n>', "plan with fewer experts than the model's own", integerOption(1, 1024))
    .option(
      '--memory <size>',
      'plan for a machine with this much memory, of which the system keeps a part (default: what is free here)',
      byteSizeOption,
    )
    .option('--gpu <size>', 'plan for a GPU that has this much memory free, beside the memory', positiveByteSizeOption)
    .option(
      '--gpu-speed <size>',
      `with --gpu: bytes of weights that it computes per second (default: ${formatBytes(GPU_WEIGHTS)})`,
      positiveByteSizeOption,
    )
    .option(
      '--read-speed <size>',
      `bytes per second of the disk (default: measured, or ${formatBytes(READ_SPEED)})`,
      positiveByteSizeOption,
    )
    .option(
      '--compute-speed <size>',
      `bytes of weights computed per second (default: ${formatBytes(WEIGHTS_PER_THREAD)} a thread)`,
      positiveByteSizeOption,
    )
    .action(action(inspect))
  addExamples(command, [
    ['moeflux inspect a3b', 'the 35B preset, without any file'],
    ['moeflux inspect ~/models/qwen --context 32768', 'a folder, planned for a long conversation'],
    ['moeflux inspect a17b --memory 64GB --read-speed 6GB', 'another machine than this one'],
    ['moeflux inspect a3b --gpu 8GB --memory 32GB', 'which experts go to the GPU, to memory, to disk'],
  ])
}

async function inspect(cli: Cli, model: string, options: InspectOptions): Promise<void> {
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
    rates,
    readSpeedFrom,
    estimate,
    gpu,
    expertsPerToken: experts,
  }
  if (options.json) await cli.printJson(reportJson(report))
  else await cli.print(reportText(report, text => cli.bold(text), cli.width))
}

/** A preset by its own name, or by a short name where the model is not here. */
async function findSubject(cli: Cli, model: string): Promise<ModelSubject> {
  if (Object.hasOwn(presets, model)) return presetSubject(model as PresetName)
  const { locateModel } = await import('../../storage/modelStore.js')
  const preset = findWellKnown(model)?.preset
  if (preset !== undefined && (await locateModel(model)).path === null) return presetSubject(preset)
  return folderSubject(cli, model)
}

function presetSubject(name: PresetName): ModelSubject {
  const { title, config } = presets[name]
  return {
    name: title,
    source: `preset ${name}, in 4 bit`,
    shortName: WELL_KNOWN_MODELS.find(({ preset }) => preset === name)?.names[0],
    config,
    bytes: fourBitBytes(config),
    expert2Bit: expertBytes(config, TWO_BIT),
  }
}

async function folderSubject(cli: Cli, model: string): Promise<ModelSubject> {
  const [{ findModel }, { preparePacked }, { readPackedBytes }] = await Promise.all([
    import('../../storage/modelStore.js'),
    import('../../storage/preparePacked.js'),
    import('../packedBytes.js'),
  ])
  const bar = cli.progressBar()
  const path = await findModel(model)
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
  const { measureDisk } = await import('../../bench/diskSpeed.js')
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
