// A text worker's work, the same in a thread of Node and in a worker of a page: chats to prompt text, text to token ids.
// The first message makes the encoder; each later one is a job and gets one reply.
import { messageOf, OptionError } from '../../base/errors.js'
import { type RenderJob, type RenderReply, renderChat } from '../template/chatRenderer.js'
import { AddedTokens } from '../tokenizer/addedTokens.js'
import { type EncodeOptions, Encoder, type EncoderData, type Encoding } from '../tokenizer/encoder.js'

export interface EncodeJob {
  readonly text: string
  readonly options: EncodeOptions
  /** More tokens than this are not wanted. */
  readonly limit: number
}

export type CountJob = Omit<EncodeJob, 'limit'>

export type TextJob = { readonly render: RenderJob } | { readonly encode: EncodeJob } | { readonly count: CountJob }

export type TextResult = RenderReply | Encoding | number

export type TextReply =
  | { readonly result: TextResult }
  /** The text is one that cannot be encoded. */
  | { readonly refused: { readonly got: string; readonly want: string } }
  | { readonly failed: string }

type Send = (reply: TextReply | 'ready', transfer?: ArrayBuffer[]) => void

export class TextService {
  private readonly encoder: Encoder
  private readonly added: AddedTokens

  constructor(
    data: EncoderData,
    private readonly send: Send,
  ) {
    this.encoder = new Encoder(data)
    this.added = new AddedTokens(data.addedTokens)
    send('ready')
  }

  hear(job: TextJob): void {
    try {
      if ('encode' in job) {
        const encoding = this.encode(job.encode)
        this.send({ result: encoding }, [encoding.ids.buffer as ArrayBuffer])
      } else if ('count' in job) this.send({ result: this.encoder.count(job.count.text, job.count.options) })
      else this.send({ result: renderChat(job.render, this.added, this.encoder) })
    } catch (error) {
      if (error instanceof OptionError) this.send({ refused: { got: String(error.got), want: error.want } })
      else this.send({ failed: messageOf(error) })
    }
  }

  private encode({ text, options, limit }: EncodeJob): Encoding {
    return this.encoder.encode(text, options, limit)
  }
}
