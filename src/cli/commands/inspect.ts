// `moeflux inspect`: a model's shapes and sizes, what of it fits this machine, and the speed to expect. Opens no backend
// and reads no weights.
import type { Command } from 'commander'
import { ModelNotFoundError } from '../../errors.js'
import { estimateModel, type MachineRates } from '../../model/estimate.js'
import { type PresetName, presets } from '../../model/presets.js'
import { allExpertsBytes, expertBytes, FOUR_BIT, matrixBytes, residentBytes, TWO_BIT } from '../../model/sizes.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import { thisMachine } from '../machine.js'
import { type ModelReport, type ModelSubject, reportJson, reportText } from '../modelReport.js'
import { addExamples, byteSizeOption, integerOption } from '../optionValues.js'

interface InspectOptions {
  readonly json?: boolean
  readonly context: number
  readonly expertsPerToken?: number
  readonly memory?: number
  readonly readSpeed?: number
  readonly computeSpeed?: number
}

/** Weights that one thread of the wasm backend gets through per second; measured on a server core. */
const WEIGHTS_PER_THREAD = 6e9
/** Random reads of one expert, eight at a time, from a good NVMe disk. */
const READ_SPEED = 2.5e9

export function registerInspect(program: Command): void {
  const command = program
    .command('inspect')
    .description("show a model's shapes and sizes, what fits this machine, and the speed to expect")
    .argument('<model>', 'a model of the local store, a folder, or a preset: a3b, a17b')
    .option('--json', 'print everything as JSON')
    .option('--context <tokens>', 'length of the conversation to plan for', integerOption(1), 4096)
    .option('--experts-per-token <n>', "plan with fewer experts than the model's own", integerOption(1, 1024))
    .option('--memory <size>', 'plan with this much memory (default: what is free here)', byteSizeOption)
    .option('--read-speed <size>', `bytes per second of the disk (default: ${formatBytes(READ_SPEED)})`, byteSizeOption)
    .option(
      '--compute-speed <size>',
      `bytes of weights computed per second (default: ${formatBytes(WEIGHTS_PER_THREAD)} a thread)`,
      byteSizeOption,
    )
    .action(action(inspect))
  addExamples(command, [
    ['moeflux inspect a3b', 'the 35B preset, without any file'],
    ['moeflux inspect ~/models/qwen --context 32768', 'a folder, planned for a long conversation'],
    ['moeflux inspect a17b --memory 64GB --read-speed 6GB', 'another machine than this one'],
  ])
}

async function inspect(cli: Cli, model: string, options: InspectOptions): Promise<void> {
  const subject = await findSubject(cli, model)
  const machine = thisMachine()
  const rates: MachineRates = {
    memory: options.memory ?? machine.availableMemory,
    weightsPerSecond: options.computeSpeed ?? WEIGHTS_PER_THREAD * machine.threads,
    readsPerSecond: options.readSpeed ?? READ_SPEED,
  }
  const experts = Math.min(options.expertsPerToken ?? Number.POSITIVE_INFINITY, subject.config.expertsPerToken)
  const estimate = estimateModel(subject.config, subject.bytes, rates, options.context, experts)
  const report: ModelReport = { subject, machine, rates, estimate, expertsPerToken: experts }
  if (options.json) await cli.printJson(reportJson(report))
  else await cli.print(reportText(report, text => cli.bold(text)))
}

async function findSubject(_cli: Cli, model: string): Promise<ModelSubject> {
  if (!Object.hasOwn(presets, model)) throw new ModelNotFoundError(model, `want ${Object.keys(presets).join(' or ')}`)
  const preset = presets[model as PresetName]
  const { config } = preset
  return {
    name: preset.title,
    source: `preset ${model}, in 4 bit`,
    config,
    bytes: {
      expert: expertBytes(config, FOUR_BIT),
      allExperts: allExpertsBytes(config, FOUR_BIT),
      resident: residentBytes(config, FOUR_BIT),
      embedding: matrixBytes(config.vocabSize, config.hiddenSize, FOUR_BIT),
    },
    expert2Bit: expertBytes(config, TWO_BIT),
  }
}
