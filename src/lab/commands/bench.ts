// `moeflux bench`: how fast a model runs here: prefill, decode, time to the first token, cache hits, bytes read, memory.

import type { Command } from 'commander'
import { Option } from 'commander'
import { action, type Cli } from '../../apps/cli/action.js'
import { addDraftsOption, addModelOptions } from '../../apps/cli/modelOptions.js'
import { addExamples, integerOption, numberOption } from '../../apps/cli/optionValues.js'
import { UsageError } from '../../base/errors.js'
import type { BenchCommandOptions } from '../bench/benchModel.js'

export function registerBench(program: Command): void {
  const command = program
    .command('bench')
    .description('measure prefill and decode speed, cache hits, reads and memory')
    .option('--synthetic <preset[:layers]>', 'a random model of this shape, like a3b:8; written to the store once')
    .option('--experts <n>', 'experts per layer of a synthetic model', integerOption(1, 65536))
    .addOption(
      new Option('--bits <n>', "bits of a synthetic model's experts (default: 4)")
        .choices(['2', '4', '8'])
        .argParser(integerOption(2, 8)),
    )
    .option('--skew <x>', 'routing of a synthetic model: 0 is random, 1 is about like text', numberOption(0, 10))
    .option('--seed <n>', 'seed of a synthetic model and of the tokens fed in', integerOption(0, 2 ** 31), 1)
    .option('--prompt <n>', 'tokens in the prompt', integerOption(1), 128)
    .option('--tokens <n>', 'tokens to decode', integerOption(1), 64)
    .option('--repeat <n>', 'number of runs; medians are printed', integerOption(1, 1000), 3)
    .option('--sequences <n>', 'also decode this many sequences together', integerOption(1, 64), 1)
    .option('--no-warmup', 'count the first run too')
    .option('--greedy', "decode the model's own best tokens, without moving logits")
    .option('--accept <x>', 'with --drafts: accept guesses with this probability, at random', numberOption(0, 1))
    .option('--cold', "drop the model's files from the page cache first")
    .option('--no-disk', 'do not measure the disk')
    .option('--profile', 'show time by phase or kernel')
    .option('--json', 'print everything as JSON')
  addModelOptions(command)
  addDraftsOption(command)
  command.action(action(benchCommand))
  addExamples(command, [
    ['moeflux bench', 'the built-in model'],
    ['moeflux bench --synthetic a3b:8 --backend wasm --threads 2', 'the shape of a 35B model with 8 of its 40 layers'],
    ['moeflux bench --synthetic a3b:8 --sequences 4', 'what four users get at once, beside one alone'],
    ['moeflux bench --synthetic a3b:8 --skew 0 --expert-memory 600MB --cold', 'streaming, with random routing'],
  ])
}

async function benchCommand(cli: Cli, options: BenchCommandOptions): Promise<void> {
  if (options.synthetic !== undefined && options.model !== undefined) {
    throw new UsageError('give either --model or --synthetic')
  }
  for (const flag of ['experts', 'bits', 'skew'] as const) {
    if (options.synthetic === undefined && options[flag] !== undefined) {
      throw new UsageError(`--${flag} needs --synthetic`)
    }
  }
  if (options.accept !== undefined && !options.drafts) throw new UsageError('--accept needs --drafts')
  if (options.drafts && options.accept === undefined && !options.greedy) {
    throw new UsageError('--drafts needs --greedy, to count guesses that match the model, or --accept')
  }
  const { benchModel } = await import('../bench/benchModel.js')
  await benchModel(cli, options)
}
