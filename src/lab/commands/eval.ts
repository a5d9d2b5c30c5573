// `moeflux eval`: what a model makes of given tokens or a text: logits into a file, perplexity to stdout. Generates
// nothing.
import type { Command } from 'commander'
import { action, type Cli } from '../../apps/cli/action.js'
import { addModelOptions, type ModelOptions } from '../../apps/cli/modelOptions.js'
import { addExamples } from '../../apps/cli/optionValues.js'
import { UsageError } from '../../base/errors.js'

export interface EvalCommandOptions extends ModelOptions {
  readonly tokens?: string
  readonly textFile?: string
  readonly logits?: string
  readonly allLogits?: boolean
  readonly json?: boolean
}

export function registerEval(program: Command): void {
  const command = program
    .command('eval')
    .description('compute logits and perplexity of tokens or of a text')
    .option('--tokens <ids>', 'token ids, separated by commas or spaces')
    .option('--text-file <file>', "a text file; '-' reads stdin")
    .option('--logits <file>', 'write the logits of the last position, as float32 little-endian')
    .option('--all-logits', 'write those of every position instead, one row each')
    .option('--json', 'print the numbers as JSON')
  addModelOptions(command)
  command.action(action(evalCommand))
  addExamples(command, [
    ['moeflux eval --tokens 1,2,3 --logits out.bin', 'as many floats as the vocabulary has entries'],
    ['moeflux eval --text-file book.txt --json', 'perplexity of a text'],
    ['moeflux eval --backend reference --tokens 1,2,3 --logits out.bin --all-logits', 'a row for each token'],
  ])
}

async function evalCommand(cli: Cli, options: EvalCommandOptions): Promise<void> {
  if ((options.tokens === undefined) === (options.textFile === undefined)) {
    throw new UsageError('give either --tokens or --text-file')
  }
  if (options.allLogits && options.logits === undefined) {
    throw new UsageError('--all-logits needs --logits FILE')
  }
  const given = options.tokens === undefined ? null : parseTokens(options.tokens)
  const [{ openCliModel }, { evaluateTokens, readText }] = await Promise.all([
    import('../../apps/cli/openCliModel.js'),
    import('../eval/evaluateTokens.js'),
  ])
  const text = options.textFile === undefined ? undefined : await readText(cli, options.textFile)
  const model = await openCliModel(cli, options)
  try {
    await evaluateTokens(cli, model, { ...options, tokens: given, text })
  } finally {
    await model.close()
  }
}

export function parseTokens(text: string): number[] {
  const words = text.split(/[\s,]+/).filter(word => word !== '')
  if (words.length === 0) throw new UsageError('--tokens: want at least one id')
  return words.map(word => {
    if (!/^\d{1,10}$/.test(word)) throw new UsageError(`--tokens: '${word}' is not a token id`)
    return Number(word)
  })
}
