// `moeflux inspect`: a model's shapes and sizes, what of it fits this machine, and the speed to expect.
import type { Command } from 'commander'
import { GPU_WEIGHTS, PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../../../base/defaults.js'
import { action, type Cli } from '../action.js'
import { formatBytes } from '../format.js'
import type { InspectOptions } from '../inspectModel.js'
import { addExamples, byteSizeOption, integerOption, positiveByteSizeOption } from '../optionValues.js'

export function registerInspect(program: Command): void {
  const command = program
    .command('inspect')
    .description("show a model's shapes and sizes, what fits this machine, and the speed to expect")
    .argument('<model>', 'a model in the local store, a folder, a GGUF file, or a short name (qwen3.5-4b)')
    .option('--json', 'print everything as JSON')
    .option(
      '--context <tokens>',
      `length of the conversation to plan for (default: ${PLANNED_TOKENS}, or what the model allows)`,
      integerOption(1),
    )
    .option('--experts-per-token <n>', "plan with fewer experts than the model's own", integerOption(1, 1024))
    .option(
      '--memory <size>',
      'plan for a machine with this much memory in all (default: what is free here)',
      byteSizeOption,
    )
    .option('--gpu <size>', 'also plan for a GPU with this much free memory', positiveByteSizeOption)
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
    .action(
      action(async (cli: Cli, model: string, options: InspectOptions) => {
        const { inspect } = await import('../inspectModel.js')
        await inspect(cli, model, options)
      }),
    )
  addExamples(command, [
    ['moeflux inspect a3b', 'the 35B; needs no files'],
    ['moeflux inspect ~/models/qwen --context 32768', 'a folder, planned for a long conversation'],
    ['moeflux inspect a17b --memory 64GB --read-speed 6GB', 'for another machine'],
    ['moeflux inspect a3b --gpu 8GB --memory 32GB', 'which experts go to the GPU, to memory, to disk'],
  ])
}
