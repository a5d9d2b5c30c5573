// `moeflux doctor`: what this machine has, how fast its disk reads experts, what `auto` would choose, and advice.

import type { Command } from 'commander'
import { action, type Cli } from '../action.js'
import type { DoctorCommandOptions } from '../doctor.js'
import { addExamples, positiveByteSizeOption } from '../optionValues.js'

export function registerDoctor(program: Command): void {
  const command = program
    .command('doctor')
    .description('check this machine (CPU, GPU, memory, disk), show what auto would choose, and advise')
    .option('-m, --model <name|folder>', 'measure the disk of this model, and advise for it')
    .option('--no-disk', 'do not measure the disk')
    .option('--gpu <size>', 'show where experts would go with this much free GPU memory', positiveByteSizeOption)
    .option('--json', 'print everything as JSON')
  command.action(
    action(async (cli: Cli, options: DoctorCommandOptions) => {
      const { examine } = await import('../doctor.js')
      await examine(cli, options)
    }),
  )
  addExamples(command, [
    'moeflux doctor',
    ['moeflux doctor --model ~/models/qwen --gpu 8GB', 'for one model and a GPU'],
  ])
}
