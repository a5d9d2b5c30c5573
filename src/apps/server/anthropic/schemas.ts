// Requests of the Anthropic API as they may come in.
import { z } from 'zod'
import { toolName } from '../openai/chatSchema.js'

const text = z.string().max(32 * 2 ** 20)
const cacheControl = z.looseObject({ type: z.string() }).nullish()

const textBlock = z.looseObject({ type: z.literal('text'), text, cache_control: cacheControl })
const systemPrompt = z.union([text, z.array(textBlock).max(1024)])
const block = z.looseObject({
  type: z.string(),
  text: text.optional(),
  thinking: text.optional(),
  id: z.string().optional(),
  name: z.string().optional(),
  input: z.unknown().optional(),
  tool_use_id: z.string().optional(),
  content: z.unknown().optional(),
  is_error: z.boolean().optional(),
  cache_control: cacheControl,
})
export type ContentBlock = z.infer<typeof block>

const tool = z.looseObject({
  type: z.string().nullish(),
  name: toolName.optional(), // of tools that have one of their own
  description: text.nullish(),
  input_schema: z.record(z.string(), z.unknown()).nullish(),
  cache_control: cacheControl,
})

const toolChoice = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('auto'), disable_parallel_tool_use: z.boolean().optional() }),
    z.object({ type: z.literal('any'), disable_parallel_tool_use: z.boolean().optional() }),
    z.object({ type: z.literal('tool'), name: z.string(), disable_parallel_tool_use: z.boolean().optional() }),
    z.object({ type: z.literal('none') }),
  ])
  .nullish()

const promptFields = {
  model: z.string().max(1024).optional(), // comes back with each part of an answer
  messages: z
    .array(
      z.object({ role: z.enum(['user', 'assistant', 'system']), content: z.union([text, z.array(block).max(4096)]) }),
    )
    .min(1)
    .max(100_000),
  system: systemPrompt.nullish(),
  tools: z.array(tool).max(256).nullish(),
  tool_choice: toolChoice,
  thinking: z.looseObject({ type: z.string(), budget_tokens: z.number().int().min(1).optional() }).nullish(),
}

export const countRequest = z.object(promptFields)
export const messagesRequest = z.object({
  ...promptFields,
  max_tokens: z.number().int().min(1),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string().min(1).max(1024)).max(16).nullish(),
  temperature: z.number().min(0).max(1).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.number().int().min(0).nullish(),
  output_format: z.looseObject({ type: z.literal('json_schema'), schema: z.unknown() }).nullish(),
  output_config: z
    .looseObject({ format: z.looseObject({ type: z.literal('json_schema'), schema: z.unknown() }).nullish() })
    .nullish(),
})
export type CountRequest = z.infer<typeof countRequest>
export type MessagesRequest = z.infer<typeof messagesRequest>
