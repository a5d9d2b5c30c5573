// An answer is messages on channels: analysis, commentary (calls of tools) and final. gpt-oss speaks it. Its control tokens are
// special ones, a call ends the answer, and there is one call in it at most.
import { type ChannelHeader, ChannelSplitter } from '../answer/channelSplitter.js'
import type { Dialect } from './dialect.js'
import { prepareHarmonyChat } from './harmonyChat.js'

const START = '<|start|>'
const CHANNEL = '<|channel|>'
const MESSAGE = '<|message|>'
const END = '<|end|>'
const CALL = '<|call|>'
const RETURN = '<|return|>'
const CONSTRAIN = '<|constrain|>'
const LONGEST_HEADER = 256

const syntax = { start: START, body: MESSAGE, ends: [END, CALL, RETURN], mayBeHeader, readHeader }

export const harmony: Dialect = {
  name: 'harmony',
  isSpokenBy: template => template.includes(CHANNEL) && template.includes(MESSAGE),
  thinking: { open: `${CHANNEL}analysis${MESSAGE}`, close: END },
  layout: {
    kind: 'channels',
    thinking: { open: `${CHANNEL}analysis${MESSAGE}`, close: `${END}${START}assistant` },
    text: `${CHANNEL}final${MESSAGE}`,
  },
  call: {
    open: `${CHANNEL}commentary to=functions.`,
    name: 'bare',
    afterName: ` ${CONSTRAIN}json${MESSAGE}`,
    arguments: 'json',
    close: '',
  },
  marks: [START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN],
  endTokens: [RETURN, CALL],
  takesWrittenCalls: false, // they are control tokens, which no content may have
  createSplitter: options => new ChannelSplitter(syntax, options),
  prepare: prepareHarmonyChat,
}

/** `assistant`, which the prompt may have said already, and to whom; after the channel, whatever fits into a header. */
function mayBeHeader(text: string): boolean {
  if (text.length > LONGEST_HEADER || text.includes('\n')) return false
  if (text.includes(CHANNEL) || 'assistant'.startsWith(text)) return true
  return /^(assistant)? ?(t|to|to=[^\s<]*) ?$|^(assistant)? $|^ $/.test(text)
}

/** The recipient stands before the channel or after it. */
function readHeader(header: string): ChannelHeader {
  const channel = /<\|channel\|>\s*(\w+)/.exec(header)?.[1]
  const recipient = /(?:^|\s)to=([^\s<]+)/.exec(header)?.[1]
  if (recipient !== undefined) return { kind: 'call', tool: recipient.replace(/^functions\./, '') }
  return { kind: channel === 'analysis' ? 'thinking' : 'text' }
}
