// A conversation at the terminal: keeps the turns, sends each message with all that was said before (the session evaluates
// only what is new), and does what slash commands ask. Where lines come from is given to it.
import { writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { ContextLimitError, type Model, type ModelStats, MoefluxError, type Session } from '../../index.js'
import { writing } from '../../storage/diskFull.js'
import { readRegular } from '../../storage/regularFile.js'
import { type Cli, errorLine, Interrupted } from '../action.js'
import { formatBytes, formatFields, formatInteger, formatPercent } from '../format.js'
import { type SamplingOptions, samplerOptions } from '../samplingOptions.js'
import { type AnswerStyler, type ShownAnswer, showAnswer, speedLine } from '../showAnswer.js'
import { CHAT_COMMANDS, type ChatCommand, parseChatCommand } from './chatCommands.js'
import { formatTranscript, parseTranscript, type Turn } from './transcript.js'

export interface ChatSettings {
  readonly sampling: SamplingOptions
  readonly system: string | null
  readonly thinking: boolean
  /** Styles one answer for the terminal; null: as it is. */
  readonly createStyler: () => AnswerStyler | null
}

export class Chat {
  private turns: Turn[] = []
  private system: string | null
  private thinking: boolean
  private answerTokens = 0 // of all answers, also of those forgotten
  private readonly session: Session

  constructor(
    private readonly cli: Cli,
    private readonly model: Model,
    private readonly settings: ChatSettings,
  ) {
    this.system = settings.system
    this.thinking = settings.thinking
    this.session = model.createSession({ onWarning: line => cli.notice(line), onLog: line => cli.detail(line) })
  }

  /** Handles one entry; false when the user wants to leave. What goes wrong is said, and the chat goes on. */
  async enter(line: string): Promise<boolean> {
    if (line.trim() === '') return true
    const command = parseChatCommand(line)
    try {
      if (typeof command === 'string') this.cli.error(command)
      else if (command === null) await this.answer(line)
      else return await this.obey(command)
    } catch (error) {
      if (error instanceof Interrupted || !(error instanceof Error) || this.cli.signal.aborted) throw error
      if (!(error instanceof MoefluxError) && !('code' in error)) throw error
      this.cli.error(errorLine(error))
    }
    return true
  }

  private async answer(content: string): Promise<void> {
    const stop = new AbortController()
    let interrupts = 0
    this.cli.onInterrupt = () => {
      if (++interrupts > 1) process.exit(130)
      stop.abort(new Interrupted())
    }
    const question: Turn = { role: 'user', content }
    const shown: ShownAnswer = { text: '', thinking: '', usage: null, reason: null }
    const before = this.model.stats()
    const bar = this.cli.progressBar('tokens')
    const opening = this.system === null ? [] : [{ role: 'system', content: this.system }]
    try {
      const events = this.session.chat({
        ...samplerOptions(this.settings.sampling),
        messages: [...opening, ...this.turns, question],
        thinking: this.thinking,
        signal: AbortSignal.any([stop.signal, this.cli.signal]),
        onPromptProgress: (loaded, total) => bar.update({ phase: 'reading', loaded, total }),
      })
      await showAnswer(this.cli, events, shown, this.settings.createStyler())
    } catch (error) {
      if (error instanceof ContextLimitError) {
        const detail = 'the message was not added; /save keeps the conversation, /clear starts anew'
        throw new MoefluxError('CHAT_FULL', `${error.message}; ${detail}`)
      }
      if (!stop.signal.aborted) throw error
      this.cli.notice(this.cli.dim('stopped'))
    } finally {
      this.cli.onInterrupt = null
      bar.clear()
      this.remember(question, shown)
      this.answerTokens += answerLength(shown, before, this.model.stats())
    }
    if (shown.usage === null || stop.signal.aborted) return
    if (shown.reason === 'length') this.cli.notice('the answer was cut: --max-tokens or the context limit')
    this.cli.notice(this.cli.dim(speedLine(shown.usage, before, this.model.stats())))
  }

  /** A question without a word of an answer is forgotten; a cut answer is part of the conversation. */
  private remember(question: Turn, shown: ShownAnswer): void {
    if (shown.text === '') return
    const thoughts = shown.thinking === '' ? {} : { reasoning_content: shown.thinking }
    this.turns.push(question, { role: 'assistant', content: shown.text, ...thoughts })
  }

  private async obey(command: ChatCommand): Promise<boolean> {
    const { cli } = this
    switch (command.name) {
      case 'help':
        cli.errorText(formatFields(CHAT_COMMANDS.map(({ usage, does }) => [usage, does])))
        cli.error('  Several lines: paste them, or end a line with \\ or Alt-Enter. Ctrl-C stops an answer.')
        break
      case 'clear':
        this.turns = []
        cli.notice('forgotten')
        break
      case 'stats':
        cli.errorText(this.stats())
        break
      case 'system':
        if (command.text !== null) this.system = command.text
        cli.notice(this.system === null ? 'there is no system prompt' : `system prompt: ${this.system}`)
        break
      case 'think':
        this.thinking = command.on ?? !this.thinking
        cli.notice(`thinking is ${this.thinking ? 'on' : 'off'}`)
        break
      case 'save':
        await this.save(command.file)
        break
      case 'load':
        await this.load(command.file)
        break
      case 'exit':
        return false
    }
    return true
  }

  private async save(file: string): Promise<void> {
    const { system, turns } = this
    const path = userPath(file)
    const text = formatTranscript({ model: this.model.name, system, turns })
    await writing(path, () => writeFile(path, text, { mode: 0o600 }))
    this.cli.notice(`${turns.length} messages saved to ${path}`)
  }

  async load(file: string): Promise<void> {
    const { system, turns, model } = parseTranscript((await readRegular(userPath(file))).toString('utf8'), file)
    this.system = system
    this.turns = [...turns]
    const other = model !== '' && model !== this.model.name ? `, from ${model}` : ''
    this.cli.notice(`${turns.length} messages loaded${other}`)
  }

  private stats(): string {
    const stats = this.model.stats()
    const wanted = stats.expertHits + stats.expertMisses
    const { states, bytes } = this.session.state
    return formatFields([
      ['model', `${this.model.name}, ${this.model.backendDescription}`],
      ['messages', String(this.turns.length)],
      ['tokens', `${formatInteger(stats.promptTokens)} of prompts, ${formatInteger(this.answerTokens)} of answers`],
      ['experts in memory', `${formatPercent(stats.expertHits / wanted)} of ${formatInteger(wanted)} wanted`],
      ['read from disk', formatBytes(stats.bytesRead)],
      ['expert memory', `${stats.expertSlotsUsed} of ${stats.expertSlots} slots, ${formatBytes(stats.expertMemory)}`],
      ['kept states', `${states}, ${formatBytes(bytes)}`],
    ])
  }
}

/** The last token of an answer is never evaluated; of one that was cut off only the evaluated tokens are known. */
function answerLength({ usage, reason }: ShownAnswer, before: ModelStats, after: ModelStats): number {
  return usage !== null && reason !== null ? usage.answerTokens : after.decodeTokens - before.decodeTokens
}

function userPath(file: string): string {
  return file.startsWith('~/') ? join(homedir(), file.slice(2)) : file
}
