// `moeflux simulate`: replays a recorded trace against cache policies and budgets, and predicts hit rates and speed.
import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import { addExamples, byteSizeOption, numberOption, positiveByteSizeOption } from '../optionValues.js'

export interface SimulateCommandOptions {
  readonly budgets?: readonly number[]
  readonly disk?: number
  readonly computeMs?: number
  readonly json?: boolean
}

export function registerSimulate(program: Command): void {
  const command = program
    .command('simulate')
    .description('replay a trace against cache policies and budgets')
    .argument('<trace>', 'a file written by moeflux trace')
    .option('--budgets <sizes>', 'expert memory to try, separated by commas: 1GB,2GB,4GB', text =>
      text.split(',').map(byteSizeOption),
    )
    .option(
      '--disk <size>',
      'bytes that the disk reads per second, like 2.5GB (default: measured here)',
      positiveByteSizeOption,
    )
    .option('--compute-ms <x>', 'time to compute a token (default: as recorded)', numberOption(0, 1e6))
    .option('--json', 'print the numbers as JSON')
  command.action(
    action(async (cli: Cli, file: string, options: SimulateCommandOptions) => {
      const { simulate } = await import('../simulate.js')
      await simulate(cli, file, options)
    }),
  )
  addExamples(command, [
    'moeflux simulate story.trace',
    ['moeflux simulate essay.trace --budgets 2GB,4GB,8GB --disk 3GB', 'for another machine'],
  ])
}
