// `moeflux simulate`: replays recorded traces against cache policies and budgets, of one tier or of three, and predicts hit
// rates and speed.

import type { Command } from 'commander'
import { action, type Cli } from '../../apps/cli/action.js'
import {
  addExamples,
  byteSizeOption,
  integerOption,
  listOption,
  numberOption,
  positiveByteSizeOption,
  sizeOrShareOption,
} from '../../apps/cli/optionValues.js'
import type { SimulateCommandOptions } from '../traces/simulateOptions.js'

export function registerSimulate(program: Command): void {
  const command = program
    .command('simulate')
    .description('replay traces against cache policies and budgets')
    .argument('<traces...>', 'files that moeflux trace wrote; several are replayed in a row')
    .option('--budgets <sizes>', 'sizes of expert memory to try, like 1GB,2GB,4GB', listOption(byteSizeOption))
    .option(
      '--gpu <sizes>',
      'three tiers: GPU memory for experts to try, like 3GB or 25%',
      listOption(sizeOrShareOption),
    )
    .option(
      '--memory <sizes>',
      'with --gpu: memory for experts to try, like 6GB or 50% (default: room for all)',
      listOption(sizeOrShareOption),
    )
    .option(
      '--disk <size>',
      'read speed of the disk per second, like 2.5GB (default: measured here)',
      positiveByteSizeOption,
    )
    .option('--compute-ms <x>', 'time to compute a token (default: as recorded)', numberOption(0, 1e6))
    .option(
      '--cpu <size>',
      'with --gpu: bytes of experts that the CPU computes per second (default: 5GB per core of this machine)',
      positiveByteSizeOption,
    )
    .option('--upload <size>', 'with --gpu: upload speed to the GPU per second (default: 4GB)', positiveByteSizeOption)
    .option(
      '--wait-us <x>',
      'with --gpu: microseconds to hand a layer to the CPU and back (default: 100)',
      numberOption(0, 1e6),
    )
    .option(
      '--promote <n>',
      'with --gpu: experts that may move to the GPU beside a token (default: 4)',
      integerOption(0),
    )
    .option('--csv', 'print the numbers as comma-separated values')
    .option('--json', 'print the numbers as JSON')
  command.action(
    action(async (cli: Cli, files: string[], options: SimulateCommandOptions) => {
      const { simulate } = await import('../traces/simulate.js')
      await simulate(cli, files, options)
    }),
  )
  addExamples(command, [
    'moeflux simulate story.trace',
    ['moeflux simulate essay.trace --budgets 2GB,4GB,8GB --disk 3GB', 'for another machine'],
    ['moeflux simulate essay.trace --gpu 3GB,5GB --memory 8GB --cpu 50GB', 'GPU, memory and disk together'],
    ['moeflux simulate *.trace --gpu 25% --memory 25%,50% --csv', 'shares of all experts, for a plot'],
  ])
}
