// `moeflux run`: one prompt, one answer; at a terminal without a prompt a chat. The answer alone goes to stdout; thinking (dimmed),
// notices and the closing line with the speed go to stderr.
import type { Command } from 'commander'
import { UsageError } from '../../../base/errors.js'
import type { Model } from '../../../index.js'
import { action, type Cli } from '../action.js'
import { addDraftsOption, addModelOptions, type ModelOptions } from '../modelOptions.js'
import { addExamples, collectOption } from '../optionValues.js'
import { readPrompt } from '../promptInput.js'
import { addSamplingOptions, type SamplingOptions, samplerOptions } from '../samplingOptions.js'
import { chat } from './chat.js'

type Printing = typeof import('../printAnswer.js')

interface RunOptions extends ModelOptions, SamplingOptions {
  readonly system?: string
  readonly think?: boolean
  readonly raw?: boolean
  readonly file?: readonly string[]
  readonly json?: boolean
}

export function registerRun(program: Command): void {
  const command = program
    .command('run')
    .description('answer one prompt; without one, chat')
    .argument('[prompt...]', "the prompt; piped text comes before it; '-' reads all of it from stdin")
    .optionsGroup('Prompt:')
    .option('-f, --file <file>', 'put a text file before the prompt; repeatable', collectOption)
    .option('-s, --system <text>', 'a system prompt')
    .option('--think', 'let the model think first; thinking goes to stderr')
    .option('--raw', 'continue the text as it is, without the chat template')
    .option('--json', 'print text, thinking, tokens and speeds as JSON, when the answer is whole')
  addSamplingOptions(command)
  addModelOptions(command)
  addDraftsOption(command)
  command.action(action(run))
  addExamples(command, [
    'moeflux run "Tell me a story about a girl named Mia"',
    ['moeflux run --seed 1 "Tell me a story" > story.txt', 'the same text every time'],
    ['cat notes.md | moeflux run -m qwen3.6-35b "Summarize this"', 'a text, and what to do with it'],
    ['moeflux run -f notes.md -f plan.md "What is missing?"', 'several files'],
    ['moeflux run --json-schema person.json "Invent a person"', 'JSON that fits the schema'],
    ['moeflux run --raw "Once upon a time"', 'continue a text'],
  ])
}

async function run(cli: Cli, words: string[], options: RunOptions): Promise<void> {
  if (options.raw && (options.system !== undefined || options.think)) {
    throw new UsageError('--raw uses no chat template: leave out --system and --think')
  }
  if (asksForChat(words, options)) return await chat(cli, options)
  const prompt = await readPrompt({ words, files: options.file, signal: cli.signal, onWait: line => cli.notice(line) })
  const [{ openCliModel }, printing] = await Promise.all([import('../openCliModel.js'), import('../printAnswer.js')])
  const model = await openCliModel(cli, options)
  try {
    await answer(cli, model, prompt, options, printing)
  } finally {
    await model.close()
  }
}

/** A person who has nothing to ask yet. */
function asksForChat(words: readonly string[], { file, raw, json }: RunOptions): boolean {
  return words.length === 0 && file === undefined && !raw && !json && process.stdin.isTTY && process.stdout.isTTY
}

async function answer(cli: Cli, model: Model, prompt: string, options: RunOptions, printing: Printing): Promise<void> {
  const { answerDetails, answerStyle, noAnswer, printAnswer, printJsonAnswer, speedLine } = printing
  const session = model.createSession({ maxSequences: 1 })
  const bar = cli.progressBar('tokens')
  const request = {
    ...samplerOptions(options),
    signal: cli.signal,
    onPromptProgress: (loaded: number, total: number) => bar.update({ phase: 'reading the prompt', loaded, total }),
  }
  const messages = [
    ...(options.system === undefined ? [] : [{ role: 'system', content: options.system }]),
    { role: 'user', content: prompt },
  ]
  const events = options.raw
    ? session.complete({ ...request, prompt })
    : session.chat({ ...request, messages, thinking: options.think })
  if (options.json) return await printJsonAnswer(cli, model, events)
  const before = model.stats()
  const shown = noAnswer()
  const isPlain = options.raw === true
  const styler = options.jsonSchema === undefined ? answerStyle(isPlain) : null // JSON is for copying
  await printAnswer(cli, events, shown, styler)
  const { usage, reason } = shown
  if (usage === null) return
  if (reason === 'length') {
    const wanted = usage.answerTokens === options.maxTokens
    cli.notice(
      wanted
        ? `stopped after ${usage.answerTokens} tokens (--max-tokens)`
        : `stopped: the context of ${model.contextLength} tokens is full`,
    )
  }
  cli.notice(cli.dim(speedLine(usage)))
  cli.detail(answerDetails(usage, before, model.stats()))
}
