// `moeflux chat`: a conversation at the terminal, or line by line from a pipe.
import { createInterface } from 'node:readline'
import type { Command } from 'commander'
import { action, type Cli, Interrupted } from '../action.js'
import type { Chat } from '../chat/chat.js'
import { addDraftsOption, addModelOptions, type ModelOptions } from '../modelOptions.js'
import { addExamples } from '../optionValues.js'
import { addSamplingOptions, type SamplingOptions } from '../samplingOptions.js'

interface ChatCommandOptions extends ModelOptions, SamplingOptions {
  readonly system?: string
  readonly think?: boolean
  readonly load?: string
}

export function registerChat(program: Command): void {
  const command = program
    .command('chat')
    .description('talk with a model; /help lists its commands')
    .optionsGroup('Conversation:')
    .option('-s, --system <text>', 'a system prompt')
    .option('--think', 'let the model think before it answers')
    .option('--load <file>', 'continue a conversation that /save wrote')
  addSamplingOptions(command)
  addModelOptions(command)
  addDraftsOption(command)
  command.action(action(chat))
  addExamples(command, [
    'moeflux chat',
    ['moeflux chat --model ~/models/qwen --think', 'a model of your own, thinking first'],
    ['moeflux chat --load dogs.json', 'continue where /save left off'],
    ['printf "Hi\\nWho are you?\\n" | moeflux chat --quiet', 'each line of a pipe is a message'],
  ])
}

export async function chat(cli: Cli, options: ChatCommandOptions): Promise<void> {
  const [{ openCliModel }, { findOrPull }, { Chat }, { answerStyle }] = await Promise.all([
    import('../openCliModel.js'),
    import('../findOrPull.js'),
    import('../chat/chat.js'),
    import('../printAnswer.js'),
  ])
  const model = await openCliModel(cli, options)
  const conversation = new Chat(cli, model, {
    sampling: options,
    system: options.system ?? null,
    thinking: options.think === true,
    createStyler: answerStyle,
    findModel: name => findOrPull(cli, name, options.yes === true),
    openModel: path => openCliModel(cli, { ...options, model: path }),
  })
  try {
    if (options.load !== undefined) await conversation.load(options.load)
    if (process.stdin.isTTY) {
      cli.notice(cli.dim(`${model.name} on ${model.backendDescription}. /help shows the commands, Ctrl-D quits.`))
      await talk(cli, conversation)
    } else await readPipe(cli, conversation)
  } finally {
    await conversation.close()
  }
}

async function talk(cli: Cli, conversation: Chat): Promise<void> {
  const [{ TerminalInput }, { completeChatCommand }, { readHistory, writeHistory }] = await Promise.all([
    import('../chat/terminalInput.js'),
    import('../chat/chatCommands.js'),
    import('../chat/terminalInput.js'),
  ])
  const history = await readHistory()
  const input = new TerminalInput({ history, complete: completeChatCommand })
  let interrupts = 0
  try {
    for (;;) {
      const entry = await input.read('> ', '. ')
      if (entry.type === 'end') return
      if (entry.type === 'interrupt') {
        if (++interrupts > 1) throw new Interrupted()
        cli.error(cli.dim('Ctrl-C again leaves'))
        continue
      }
      interrupts = 0
      if (!(await conversation.enter(entry.text))) return
      cli.errorText('\n')
    }
  } finally {
    await writeHistory(history)
  }
}

/** Without a terminal every line is a message, as it is: what writes into a pipe does not mean a backslash for the chat. */
async function readPipe(cli: Cli, conversation: Chat): Promise<void> {
  const lines = createInterface({ input: process.stdin, signal: cli.signal })
  for await (const line of lines) if (!(await conversation.enter(line))) return
}
