// Requests of ollama's API as they may come in. Fields that are not named here are ignored, as it does itself.
import { z } from 'zod'
import { parseDuration } from '../../../base/quantities.js'
import { toolName } from '../openai/chatSchema.js'

const text = z.string().max(32 * 2 ** 20)
const stop = z.union([z.string().max(1024), z.array(z.string().max(1024)).max(16)])

const options = z
  .object({
    temperature: z.number().min(0).max(100).nullish(),
    top_p: z.number().min(0).max(1).nullish(),
    top_k: z.number().int().nullish(), // below one: all of them
    min_p: z.number().min(0).max(1).nullish(),
    seed: z.number().int().nullish(), // below zero: any
    num_predict: z.number().int().min(-2).nullish(), // below zero: no limit
    repeat_penalty: z.number().gt(0).max(10).nullish(),
    presence_penalty: z.number().min(-2).max(2).nullish(),
    frequency_penalty: z.number().min(-2).max(2).nullish(),
    stop: stop.nullish(),
  })
  .nullish()

const keep_alive = z
  .union([z.number(), z.string().max(64)])
  .transform((time, context) => {
    const ms = keepAliveMs(time)
    if (ms === null) context.addIssue("want seconds, or a time like '5m'")
    return ms ?? z.NEVER
  })
  .nullish()
const refused = { error: 'is not supported here' }
const images = z.array(z.unknown()).max(256).nullish()
const message = z.looseObject({
  role: z.string(),
  content: text.nullish(),
  thinking: text.nullish(),
  images,
  tool_name: z.string().nullish(),
  tool_call_id: z.string().nullish(),
  tool_calls: z
    .array(z.object({ id: z.string().nullish(), function: z.object({ name: z.string(), arguments: z.unknown() }) }))
    .max(256)
    .nullish(),
})
const tool = z.object({
  type: z.literal('function', { error: 'only function tools are supported' }).optional(),
  function: z.object({
    name: toolName,
    description: text.nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
  }),
})

const answerFields = {
  model: z.string().max(1024).optional(),
  stream: z.boolean().nullish(), // unlike in the other APIs, left out means yes
  format: z.union([z.literal('json'), z.literal(''), z.record(z.string(), z.unknown())]).nullish(),
  think: z.union([z.boolean(), z.string().max(64)]).nullish(),
  keep_alive,
  options,
}

export const chatRequest = z.object({
  ...answerFields,
  messages: z.array(message).max(10_000).nullish(),
  tools: z.array(tool).max(256).nullish(),
})

export const generateRequest = z.object({
  ...answerFields,
  prompt: text.nullish(),
  system: text.nullish(),
  suffix: z.literal('', refused).nullish(),
  template: z.literal('', refused).nullish(),
  context: z.array(z.unknown()).max(0, { error: 'is not supported here: /api/chat remembers' }).nullish(),
  raw: z.boolean().nullish(),
  images,
})

export const embedRequest = z.object({
  model: z.string().max(1024).optional(),
  input: z.union([text, z.array(text).max(2048)]).nullish(), // none: the model is loaded
  keep_alive,
  truncate: z.boolean().nullish(),
  dimensions: z.number().int().min(1).nullish(),
})

/** As it was before /api/embed. */
export const embeddingsRequest = z.object({
  model: z.string().max(1024).optional(),
  prompt: text.nullish(),
  keep_alive,
})

export const showRequest = z.object({ model: z.string().max(1024).nullish(), name: z.string().max(1024).nullish() })

export const pullRequest = showRequest.extend({ stream: z.boolean().nullish() })

export type ChatRequest = z.infer<typeof chatRequest>
export type GenerateRequest = z.infer<typeof generateRequest>
export type EmbedRequest = z.infer<typeof embedRequest>
export type EmbeddingsRequest = z.infer<typeof embeddingsRequest>
export type ShowRequest = z.infer<typeof showRequest>
export type PullRequest = z.infer<typeof pullRequest>
export type AnswerFields = Pick<ChatRequest, 'model' | 'format' | 'think' | 'keep_alive' | 'options'>

/**
 * How long a model is kept after a request, in milliseconds, from seconds or a time like '5m' or
 * '1h30m'; null: neither.
 */
export function keepAliveMs(time: number | string): number | null {
  const ms = typeof time === 'number' ? time * 1000 : signedMs(time.trim())
  return ms !== null && ms < 0 ? Number.POSITIVE_INFINITY : ms // below zero: without end
}

function signedMs(time: string): number | null {
  const ms = parseDuration(time.replace(/^[+-]/, ''))
  return ms !== null && time.startsWith('-') ? -ms : ms
}
