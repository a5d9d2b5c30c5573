// Requests of the OpenAI API as they may come in. Fields that are not named here are ignored, as the API itself ignores
// what clients send along; fields that would change the answer in a way that this server cannot do are refused.
import { z } from 'zod'

const text = z.string().max(32 * 2 ** 20)
const refused = (what: string) => z.undefined({ error: `${what} is not supported here` }).optional()

export const samplingFields = {
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.number().int().min(0).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  repetition_penalty: z.number().gt(0).max(10).nullish(),
  logit_bias: z
    .custom<object>(bias => Object.keys(Object(bias)).length <= 1024, 'want at most 1024 entries') // before each is read
    .pipe(z.record(z.string().regex(/^\d+$/, 'want token ids as keys'), z.number().min(-100).max(100)))
    .nullish(),
  seed: z.number().int().nullish(),
}
/** -1 is how other servers say that there is no limit. */
const maxTokens = z.union([z.literal(-1), z.number().int().min(1)]).nullish()
const stop = z.union([z.string().max(1024), z.array(z.string().max(1024)).max(16)]).nullish()
const streamOptions = z.object({ include_usage: z.boolean().nullish() }).nullish()

const jsonSchemaFormat = z.object({
  name: z.string().max(256).optional(),
  description: z.string().optional(),
  schema: z.unknown(),
  strict: z.boolean().nullish(),
})
const responseFormat = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('text') }),
    z.object({ type: z.literal('json_object') }),
    z.object({ type: z.literal('json_schema'), json_schema: jsonSchemaFormat }),
  ])
  .nullish()

export const toolName = z.string().regex(/^[a-zA-Z0-9_.-]{1,128}$/, 'want 1 to 128 letters, digits, _, . or -')
const functionTool = z.object({
  type: z.literal('function', { error: 'only function tools are supported' }),
  function: z.object({
    name: toolName,
    description: text.nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
    strict: z.boolean().nullish(),
  }),
})
const toolChoice = z
  .union([
    z.enum(['none', 'auto', 'required']),
    z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) }),
  ])
  .nullish()

const part = z.looseObject({ type: z.string(), text: text.optional() })
const message = z.looseObject({
  role: z.string(),
  content: z.union([text, z.array(part).max(4096)]).nullish(),
  reasoning_content: text.nullish(),
  name: z.string().nullish(),
  tool_call_id: z.string().nullish(),
  tool_calls: z
    .array(
      z.object({
        id: z.string().optional(),
        type: z.string().optional(),
        function: z.object({ name: z.string(), arguments: z.unknown() }),
      }),
    )
    .max(256)
    .nullish(),
})

export const chatRequest = z.object({
  model: z.string().max(1024).optional(), // comes back with each part of an answer
  messages: z.array(message).min(1).max(10_000),
  ...samplingFields,
  max_tokens: maxTokens,
  max_completion_tokens: maxTokens,
  n: z.number().int().min(1).max(16).nullish(),
  stop,
  stream: z.boolean().nullish(),
  stream_options: streamOptions,
  return_progress: z.boolean().nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(20).nullish(),
  response_format: responseFormat,
  grammar: z.string().max(400_000).nullish(),
  tools: z.array(functionTool).max(256).nullish(),
  tool_choice: toolChoice,
  parallel_tool_calls: z.boolean().nullish(),
  reasoning_effort: z.string().nullish(),
  thinking_budget: z.number().int().min(0).nullish(),
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
  continue_final_message: z.boolean().nullish(),
  modalities: z.array(z.literal('text', { error: 'only text is supported' })).nullish(),
  audio: refused('audio'),
  functions: refused('functions (use tools)'),
  function_call: refused('function_call (use tool_choice)'),
})
export type ChatRequest = z.infer<typeof chatRequest>

/** A list of numbers by the million is not taken apart one by one. */
const tokenIds = z.custom<number[]>(
  value =>
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= 2 ** 20 &&
    value.every(id => Number.isInteger(id) && id >= 0),
  'want text, token ids, or a list of these',
)

const textOrIds = (most: number) =>
  z.union([text, z.array(text).min(1).max(most), tokenIds, z.array(tokenIds).min(1).max(most)])

export const embeddingRequest = z.object({
  model: z.string().max(1024).optional(),
  input: textOrIds(2048),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.number().int().min(1).nullish(),
})

const completionFields = z.object({
  model: z.string().max(1024).optional(), // comes back with each part of an answer
  prompt: textOrIds(16),
  ...samplingFields,
  max_tokens: z.union([z.literal(-1), z.number().int().min(0)]).nullish(),
  n: z.number().int().min(1).max(16).nullish(),
  best_of: z.number().int().min(1).max(1, 'best_of more than 1 is not supported').nullish(),
  echo: z.boolean().nullish(),
  suffix: refused('suffix'),
  stop,
  stream: z.boolean().nullish(),
  stream_options: streamOptions,
  logprobs: z.number().int().min(0).max(20).nullish(),
  grammar: z.string().max(400_000).nullish(),
  response_format: responseFormat,
})
export const completionRequest = completionFields.refine(({ echo, logprobs }) => !echo || logprobs == null, {
  path: ['echo'],
  error: 'not supported together with logprobs, which are known of the answer alone',
})
export type CompletionRequest = z.infer<typeof completionRequest>
export type EmbeddingRequest = z.infer<typeof embeddingRequest>
