// A conversation at the terminal: keeps the turns, sends each message with all that was said before (the session evaluates
// only what is new), and does what slash commands ask. Where lines come from is given to it.
import { writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { readRegular } from '../../../base/regularFile.js'
import { ContextLimitError, demoModelPath, listModels, type Model, MoefluxError, type Session } from '../../../index.js'
import { DEMO_NAME, writing } from '../../../internal.js'
import { type Cli, errorLine, Interrupted } from '../action.js'
import { formatBytes, formatFields, formatTable } from '../format.js'
import { type AnswerStyler, answerDetails, noAnswer, printAnswer, type ShownAnswer, speedLine } from '../printAnswer.js'
import { changeSampling, type SamplingOptions, samplerOptions, samplingFields } from '../samplingOptions.js'
import { CHAT_COMMANDS, type ChatCommand, parseChatCommand } from './chatCommands.js'
import { answerLength, chatStats } from './chatStats.js'
import { formatTranscript, parseTranscript, type Turn } from './transcript.js'

export interface ChatSettings {
  readonly sampling: SamplingOptions
  readonly system: string | null
  readonly thinking: boolean
  /** Styles one answer for the terminal; null: as it is. */
  readonly createStyler: () => AnswerStyler | null
  /** Where a model is that was named; one that is not here may be pulled. */
  readonly findModel: (name: string) => Promise<string>
  readonly openModel: (path: string) => Promise<Model>
}

export class Chat {
  private turns: Turn[] = []
  private sampling: SamplingOptions
  private system: string | null
  private thinking: boolean
  private answerTokens = 0 // of all answers, also of those forgotten
  private session: Session
  private retries = 0 // of the last message
  private lastSpeed: string | null = null // of the last answer, in words

  constructor(
    private readonly cli: Cli,
    private model: Model,
    private readonly settings: ChatSettings,
  ) {
    this.sampling = settings.sampling
    this.system = settings.system
    this.thinking = settings.thinking
    this.session = this.openSession()
  }

  private openSession(): Session {
    const { cli } = this
    return this.model.createSession({ onWarning: line => cli.notice(line), onLog: line => cli.detail(line) })
  }

  close(): Promise<void> {
    return this.model.close()
  }

  /** Handles one entry; false when the user wants to leave. What goes wrong is said, and the chat goes on. */
  async enter(line: string): Promise<boolean> {
    if (line.trim() === '') return true
    const command = parseChatCommand(line)
    try {
      if (typeof command === 'string') this.cli.error(command)
      else if (command === null) {
        this.retries = 0
        await this.answer(line)
      } else return await this.obey(command)
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
    const shown = noAnswer()
    const before = this.model.stats()
    const bar = this.cli.progressBar('tokens')
    const opening = this.system === null ? [] : [{ role: 'system', content: this.system }]
    try {
      const events = this.session.chat({
        ...samplerOptions(this.sampling),
        ...this.otherSeed(),
        messages: [...opening, ...this.turns, question],
        thinking: this.thinking,
        signal: AbortSignal.any([stop.signal, this.cli.signal]),
        onPromptProgress: (loaded, total) => bar.update({ phase: 'reading', loaded, total }),
      })
      await printAnswer(this.cli, events, shown, this.settings.createStyler())
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
    if (shown.reason === 'length') this.cli.notice('the answer was cut at --max-tokens or the context limit')
    this.lastSpeed = `${speedLine(shown.usage)} · ${answerDetails(shown.usage, before, this.model.stats())}`
    this.cli.notice(this.cli.dim(speedLine(shown.usage)))
  }

  /** A question without a word of an answer is forgotten; a cut answer is part of the conversation. */
  private remember(question: Turn, shown: ShownAnswer): void {
    if (shown.text === '') return
    const thoughts = shown.thinking === '' ? {} : { reasoning_content: shown.thinking }
    this.turns.push(question, { role: 'assistant', content: shown.text, ...thoughts })
  }

  /** With the seed of the command line a message would get the same answer again. */
  private otherSeed(): { seed?: number } {
    const { seed } = this.sampling
    return seed === undefined || this.retries === 0 ? {} : { seed: (seed + this.retries) >>> 0 }
  }

  /** Takes the last message and its answer out of the conversation. */
  private takeBack(): Turn | null {
    const [question] = this.turns.splice(-2)
    return question ?? null
  }

  private async retry(): Promise<void> {
    const before = this.turns
    const question = this.turns.at(-2)
    if (question === undefined) return this.cli.error('there is no message to answer once more')
    this.turns = before.slice(0, -2)
    this.retries++
    await this.answer(question.content).finally(() => {
      // Without a word of another answer the old one stays.
      if (this.turns.length < before.length) this.turns = before
    })
  }

  /** The one that is open makes room first; where the other cannot be opened, it comes back. */
  private async switchModel(name: string): Promise<void> {
    const path = await this.settings.findModel(name)
    const { folder } = this.model
    await this.model.close()
    try {
      this.model = await this.settings.openModel(path)
    } catch (error) {
      this.model = await this.settings.openModel(folder.location)
      throw error
    } finally {
      this.session = this.openSession()
    }
  }

  private async obey(command: ChatCommand): Promise<boolean> {
    const { cli } = this
    switch (command.name) {
      case 'help':
        cli.errorText(
          formatFields(
            CHAT_COMMANDS.map(({ usage, does }) => [usage, does]),
            cli.errorWidth,
          ),
        )
        cli.error('  Several lines: paste them, or end a line with \\ or Alt-Enter. Ctrl-C stops an answer.')
        break
      case 'clear':
        this.turns = []
        cli.notice('cleared')
        break
      case 'retry':
        await this.retry()
        break
      case 'undo':
        cli.notice(this.takeBack() === null ? 'there is no message to remove' : 'the last message is removed')
        break
      case 'model':
        if (command.model !== null) await this.switchModel(command.model)
        cli.notice(`${this.model.name} on ${this.model.backendDescription}`)
        break
      case 'list':
        await this.list()
        break
      case 'set':
        this.set(command.setting, command.value)
        break
      case 'stats':
        cli.errorText(formatFields(this.stats(), cli.errorWidth))
        break
      case 'system':
        if (command.text !== null) this.system = command.text === '' ? null : command.text
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

  /** Shows what changed, or everything where nothing is to change. */
  private set(setting: string | null, value: string): void {
    const { cli, system, thinking } = this
    const before = samplingFields(this.sampling)
    if (setting !== null) this.sampling = changeSampling(this.sampling, setting, value)
    const after = samplingFields(this.sampling)
    const others: [string, string][] = [
      ['system', system ?? 'none'],
      ['thinking', thinking ? 'on' : 'off'],
    ]
    const shown = setting === null ? [...others, ...after] : after.filter(([, text], i) => text !== before[i][1])
    cli.errorText(formatFields(shown, cli.errorWidth))
  }

  private async list(): Promise<void> {
    const ready = (await listModels()).filter(({ state }) => state !== 'unfinished')
    const rows = ready.map(({ name, bytes, folder }) => [name, formatBytes(bytes), this.isOpen(folder)])
    rows.push([DEMO_NAME, 'built in', this.isOpen(demoModelPath())])
    this.cli.errorText(formatTable([{ title: '' }, { title: '', align: 'right' }, { title: '' }], rows))
  }

  private isOpen(folder: string): string {
    return this.model.folder.location === folder ? 'open' : ''
  }

  private stats(): [string, string][] {
    const { turns, answerTokens, lastSpeed } = this
    return chatStats(this.model, this.session.state, { messages: turns.length, answerTokens, lastSpeed })
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
}

function userPath(file: string): string {
  return file.startsWith('~/') ? join(homedir(), file.slice(2)) : file
}
