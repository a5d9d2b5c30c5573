// What a reply of each endpoint says, in one form, whether it came whole or as events, so that two answers to the same
// request can be compared: { choices: [{ text, thinking, calls, finish }], isEnded, error }.
import { sentEvents } from './exchange.mjs'

export const ANSWER_PATHS = ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages']

/** Throws where the reply is not of the shape of its endpoint. */
export function readAnswer(path, reply) {
  const isStream = reply.headers['content-type']?.startsWith('text/event-stream') === true
  if (!isStream) return { ...WHOLE[path](JSON.parse(reply.text)), isStream, isEnded: true, error: null }
  return { ...STREAMED[path](sentEvents(reply.text)), isStream }
}

/** The error of a refusal: `{ code, type, message }`. Throws where it is not of the shape of its API. */
export function readRefusal(path, reply) {
  const body = JSON.parse(reply.text)
  const { error } = body
  if (typeof error?.message !== 'string' || typeof error.type !== 'string') throw new Error('no error in the body')
  if (path.startsWith('/v1/messages')) {
    if (body.type !== 'error' || typeof body.request_id !== 'string') throw new Error("not Anthropic's shape")
    return { code: null, type: error.type, message: error.message }
  }
  if (!('param' in error) || !('code' in error)) throw new Error("not OpenAI's shape")
  return { code: error.code, type: error.type, message: error.message }
}

/** One line for comparisons. */
export function answerKey({ choices }) {
  return JSON.stringify(choices.map(({ text, thinking, calls, finish }) => [text, thinking, calls, finish]))
}

const emptyChoice = () => ({ text: '', thinking: '', calls: [], finish: null })

const WHOLE = {
  '/v1/chat/completions': body => ({
    choices: body.choices.map(({ message, finish_reason: finish }) => ({
      text: message.content ?? '',
      thinking: message.reasoning_content ?? '',
      calls: (message.tool_calls ?? []).map(call => [call.function.name, call.function.arguments]),
      finish,
    })),
  }),
  '/v1/completions': body => ({
    choices: body.choices.map(({ text, finish_reason: finish }) => ({ ...emptyChoice(), text, finish })),
  }),
  '/v1/responses': body => ({ choices: [responseChoice(body)] }),
  '/v1/messages': body => {
    const choice = { ...emptyChoice(), finish: body.stop_reason }
    for (const block of body.content) {
      if (block.type === 'text') choice.text += block.text
      else if (block.type === 'thinking') choice.thinking += block.thinking
      else choice.calls.push([block.name, JSON.stringify(block.input)])
    }
    return { choices: [choice] }
  },
}

function responseChoice(body) {
  const choice = { ...emptyChoice(), finish: body.status }
  for (const item of body.output) {
    if (item.type === 'message') choice.text += item.content.map(part => part.text).join('')
    else if (item.type === 'reasoning') choice.thinking += item.content.map(part => part.text).join('')
    else choice.calls.push([item.name, item.arguments])
  }
  return choice
}

const STREAMED = {
  '/v1/chat/completions': events =>
    openaiStream(events, (choice, { delta }) => {
      choice.text += delta.content ?? ''
      choice.thinking += delta.reasoning_content ?? ''
      for (const call of delta.tool_calls ?? []) {
        choice.calls[call.index] ??= ['', '']
        if (call.function.name !== undefined) choice.calls[call.index][0] = call.function.name
        choice.calls[call.index][1] += call.function.arguments
      }
    }),
  '/v1/completions': events =>
    openaiStream(events, (choice, { text }) => {
      choice.text += text
    }),
  '/v1/responses': events => {
    const last = events.at(-1)
    const data = last === undefined ? null : JSON.parse(last.data)
    const text = deltas(events, 'response.output_text.delta')
    if (last?.event === 'error') return { choices: [], isEnded: true, error: data }
    if (last?.event === 'response.failed') return { choices: [], isEnded: true, error: data.response.error }
    const isEnded = last?.event === 'response.completed' || last?.event === 'response.incomplete'
    const choices = [isEnded ? responseChoice(data.response) : { ...emptyChoice(), text }]
    if (choices[0].text !== text) throw new Error('the deltas are another text than the response')
    return { choices, isEnded, error: null }
  },
  '/v1/messages': events => {
    const choice = emptyChoice()
    let isEnded = false
    let error = null
    for (const { event, data } of events) {
      const body = JSON.parse(data)
      if (event === 'error') error = body.error
      if (event === 'error' || event === 'message_stop') isEnded = true
      else if (event === 'message_delta') choice.finish = body.delta.stop_reason
      else if (event === 'content_block_start' && body.content_block.type === 'tool_use') {
        choice.calls.push([body.content_block.name, ''])
      } else if (event === 'content_block_delta') takeBlockDelta(choice, body.delta)
    }
    // What was cut off in the middle is no JSON.
    if (isEnded && error === null)
      choice.calls = choice.calls.map(([name, input]) => [name, JSON.stringify(JSON.parse(input || '{}'))])
    return { choices: [choice], isEnded, error }
  },
}

function takeBlockDelta(choice, delta) {
  if (delta.type === 'text_delta') choice.text += delta.text
  else if (delta.type === 'thinking_delta') choice.thinking += delta.thinking
  else if (delta.type === 'input_json_delta') choice.calls.at(-1)[1] += delta.partial_json
}

function deltas(events, name) {
  const found = events.filter(({ event }) => event === name)
  return found.map(({ data }) => JSON.parse(data).delta).join('')
}

function openaiStream(events, take) {
  const choices = []
  let error = null
  for (const { data } of events) {
    if (data === '[DONE]') continue
    const body = JSON.parse(data)
    if (body.error !== undefined) error = body.error
    for (const part of body.choices ?? []) {
      const choice = (choices[part.index] ??= emptyChoice())
      take(choice, part)
      choice.finish = part.finish_reason ?? choice.finish
    }
  }
  return { choices, isEnded: events.at(-1)?.data === '[DONE]' || error !== null, error }
}
