// Renders chats and encodes text beside the thread that serves: a template is a program from a model folder, and a text may
// have megabytes; neither may hold up anything else. Ordinary jobs and long ones have a worker each, so that a long prompt
// of one client does not keep another's short one waiting. Which kind of worker (a thread in Node, a Web Worker in a
// browser) is decided by whoever makes it.
import { ClosedError, MessageError, messageOf, OptionError, TemplateError, TokenizerError } from '../../base/errors.js'
import type { RenderJob, RenderReply } from '../template/chatRenderer.js'
import type { EncodeOptions, EncoderData, Encoding } from '../tokenizer/encoder.js'
import { roughSize } from '../tokenizer/roughSize.js'
import type { Tokenizer } from '../tokenizer/tokenizer.js'
import type { TextJob, TextReply, TextResult } from './textService.js'
import { type LineOptions, type LineWorker, WorkerFailure, WorkerLine } from './workerQueue.js'

/** It is sent the encoder's data, and says `ready` when the encoder is made. */
export type TextWorker = LineWorker<EncoderData | TextJob, TextReply>
export type StartTextWorker = () => TextWorker | Promise<TextWorker>

export interface TextLimits {
  readonly milliseconds: number // for one render; for a long one, more in proportion
  readonly characters: number // of output
}

export const defaultTextLimits: TextLimits = { milliseconds: 5_000, characters: 16 * 2 ** 20 }

const INLINE_CHARACTERS = 4096 // encoded in less time than a message to a worker takes
const LONG_CHARACTERS = 2 ** 20
const ENCODE_MILLISECONDS = 60_000 // a safeguard: encoding takes a second for some megabytes
const MILLISECONDS_PER_CHARACTER = 0.005 // of long jobs, on a machine with much else to do
const IDLE_MILLISECONDS = 10_000

export class TextWorkers {
  private readonly ordinary: WorkerLine<TextJob, TextReply>
  private readonly long: WorkerLine<TextJob, TextReply>

  constructor(
    start: StartTextWorker,
    private readonly tokenizer: Tokenizer,
    private readonly limits: TextLimits = defaultTextLimits,
  ) {
    const line = (options: LineOptions) =>
      new WorkerLine<TextJob, TextReply>(async () => {
        const worker = await start()
        worker.post(tokenizer.encoderData)
        return worker
      }, options)
    this.ordinary = line({ finishesUnwanted: true })
    this.long = line({ idleMilliseconds: IDLE_MILLISECONDS })
  }

  async render(job: Omit<RenderJob, 'maxOutput'>, signal?: AbortSignal): Promise<RenderReply> {
    const { messages, tools, variables } = job.request
    const { characters } = this.limits
    const tooLong = messages.findIndex(({ content }) => content.length > characters)
    if (tooLong >= 0) {
      const { length } = messages[tooLong].content
      throw new MessageError(`messages[${tooLong}].content`, `has ${length} characters, more than ${characters}`)
    }
    const render = { ...job, maxOutput: characters }
    const { prefill, thinkingPrefill } = job.options
    const size = roughSize([messages, tools, variables, prefill, thinkingPrefill])
    const reply = await this.run({ render }, size, this.limits.milliseconds, signal)
    if ('failed' in reply) throw new TemplateError(`chat template: ${reply.failed}`)
    return resultOf(reply) as RenderReply
  }

  /** The ids of a text; where it has more than `limit`, how many there are at least. */
  async encode(text: string, options: EncodeOptions, limit: number, signal?: AbortSignal): Promise<Encoding> {
    if (text.length <= INLINE_CHARACTERS) return this.tokenizer.encodeSections(text, options, limit)
    const reply = await this.run({ encode: { text, options, limit } }, text.length, ENCODE_MILLISECONDS, signal)
    return resultOf(reply) as Encoding
  }

  async count(text: string, options: EncodeOptions, signal?: AbortSignal): Promise<number> {
    const reply = await this.run({ count: { text, options } }, text.length, ENCODE_MILLISECONDS, signal)
    return resultOf(reply) as number
  }

  close(): void {
    this.ordinary.close()
    this.long.close()
  }

  /** The worker's reply; `failed` too where the worker died, the job took too long or could not be sent. */
  private async run(job: TextJob, size: number, least: number, signal?: AbortSignal): Promise<TextReply> {
    const excess = Math.max(0, size - LONG_CHARACTERS)
    const milliseconds = Math.round(least + excess * MILLISECONDS_PER_CHARACTER)
    try {
      return await (excess > 0 ? this.long : this.ordinary).run(job, { milliseconds, signal, weight: size })
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof WorkerFailure && error.reason === 'closed') throw new ClosedError('model')
      return { failed: messageOf(error) }
    }
  }
}

function resultOf(reply: TextReply): TextResult {
  if ('result' in reply) return reply.result
  if ('refused' in reply) throw new OptionError('prompt', reply.refused.got, reply.refused.want)
  throw new TokenizerError(`encoding: ${reply.failed}`)
}
