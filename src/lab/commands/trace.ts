// `moeflux trace`: records which experts a prompt and its answer are routed to, for `moeflux simulate`.
import type { Command } from 'commander'
import { action, type Cli } from '../../apps/cli/action.js'
import { addModelOptions } from '../../apps/cli/modelOptions.js'
import { addExamples, integerOption, numberOption } from '../../apps/cli/optionValues.js'
import { DEFAULT_PROMPT, PROMPT_TOKENS_WITHOUT_TEXT, type TraceCommandOptions } from './traceOptions.js'

export function registerTrace(program: Command): void {
  const command = program
    .command('trace')
    .description('record which experts a prompt and its answer are routed to')
    .argument(
      '[prompt...]',
      `the text to begin with; '-' or a pipe: read it from stdin; none: '${DEFAULT_PROMPT}', or ` +
        `${PROMPT_TOKENS_WITHOUT_TEXT} random tokens where the model has no tokenizer`,
    )
    .requiredOption('-o, --out <file>', 'where to write the trace')
    .option('--prompt-file <file>', 'read the prompt from a file')
    .option('--token-ids', 'also record token ids, from which the text can be read back')
    .option('--weights', "also record the router's weight of each expert")
    .option('--tokens <n>', 'tokens to generate', integerOption(1), 256)
    .option('--temp <x>', 'temperature', numberOption(0, 100), 1)
    .option('--seed <n>', 'seed of the sampler', integerOption(0, 2 ** 31), 1)
  addModelOptions(command)
  command.action(
    action(async (cli: Cli, words: string[], options: TraceCommandOptions) => {
      const { recordTrace } = await import('../traces/recordTrace.js')
      await recordTrace(cli, words, options)
    }),
  )
  addExamples(command, [
    ['moeflux trace "Tell me a story about a princess" -o story.trace', 'with the built-in model'],
    ['cat essay.txt | moeflux trace -o essay.trace', 'the prompt from a pipe'],
    'moeflux trace --model qwen --prompt-file essay.txt --tokens 500 -o essay.trace',
  ])
}
