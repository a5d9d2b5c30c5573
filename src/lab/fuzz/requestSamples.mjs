// A valid request for each route with every field that its schema knows: what broken requests are made of. Answers are kept
// short; a broken request takes some of the fields.

const SCHEMA = {
  type: 'object',
  description: 'A person',
  properties: {
    name: { type: 'string', pattern: '^[A-Z][a-z]*$' },
    nick: { type: 'string', minLength: 1, maxLength: 8 },
    age: { type: 'integer', minimum: 0, maximum: 120 },
    tags: { type: 'array', items: { enum: ['a', 'b', null, 5] }, minItems: 1, maxItems: 2 },
    pair: { type: 'array', prefixItems: [{ type: 'number' }, { type: 'boolean' }], items: false },
    either: { anyOf: [{ $ref: '#/$defs/date' }, { type: 'null' }, { const: 'never' }] },
  },
  required: ['name', 'age'],
  additionalProperties: false,
  $defs: { date: { type: 'string', format: 'date' } },
}
const PARAMETERS = { type: 'object', properties: { city: { type: 'string', maxLength: 9 } }, required: ['city'] }
const FUNCTION = { name: 'get_weather', description: 'The weather', parameters: PARAMETERS, strict: true }
const GRAMMAR = 'root ::= "yes" | word\nword ::= [a-z]{1,4}'

const openaiSampling = {
  temperature: 0.7,
  top_p: 0.9,
  top_k: 20,
  min_p: 0.05,
  presence_penalty: 0.1,
  frequency_penalty: 0.1,
  repetition_penalty: 1.1,
  logit_bias: { 5: -1, 77: 2.5 },
  seed: 7,
}
const conversation = [
  { role: 'system', content: 'Be kind' },
  { role: 'user', content: [{ type: 'text', text: 'Weather in Paris?' }], name: 'mia' },
  {
    role: 'assistant',
    content: null,
    reasoning_content: 'A tool',
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Paris"}' } }],
  },
  { role: 'tool', tool_call_id: 'call_1', content: 'Sunny' },
  { role: 'user', content: 'Thank you' },
]

/** Path to `{ always, sometimes }`: fields that every broken request starts with, and fields that it may have. */
export const SAMPLES = {
  '/v1/chat/completions': {
    always: { messages: conversation, max_tokens: 3 },
    sometimes: {
      model: 'any',
      ...openaiSampling,
      max_completion_tokens: 2,
      n: 2,
      stop: ['END', '\n\n'],
      stream: true,
      stream_options: { include_usage: true },
      logprobs: true,
      top_logprobs: 3,
      response_format: { type: 'json_schema', json_schema: { name: 'person', schema: SCHEMA, strict: true } },
      grammar: GRAMMAR,
      tools: [{ type: 'function', function: FUNCTION }],
      tool_choice: { type: 'function', function: { name: 'get_weather' } },
      parallel_tool_calls: false,
      reasoning_effort: 'low',
      thinking_budget: 2,
      chat_template_kwargs: { enable_thinking: true, other: 'x' },
      modalities: ['text'],
      user: 'someone',
      metadata: { a: 'b' },
    },
  },
  '/v1/completions': {
    always: { prompt: ['Once upon', 'a time'], max_tokens: 3 },
    sometimes: {
      model: 'any',
      ...openaiSampling,
      prompt: [[1, 2, 3], [440]],
      n: 2,
      best_of: 1,
      echo: true,
      stop: 'END',
      stream: true,
      stream_options: { include_usage: true },
      logprobs: 2,
      grammar: GRAMMAR,
      response_format: { type: 'json_schema', json_schema: { name: 'x', schema: SCHEMA } },
    },
  },
  '/v1/responses': {
    always: { input: 'Hi', max_output_tokens: 3 },
    sometimes: {
      model: 'any',
      input: [
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Weather?' }] },
        { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'A tool' }] },
        { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'get_weather', arguments: '{"city":"Paris"}' },
        { type: 'function_call_output', call_id: 'call_1', output: [{ type: 'input_text', text: 'Sunny' }] },
        { role: 'user', content: 'Thank you' },
      ],
      instructions: 'Be kind',
      previous_response_id: 'resp_0',
      store: false,
      stream: true,
      temperature: 0.5,
      top_p: 0.9,
      top_logprobs: 2,
      text: { format: { type: 'json_schema', name: 'person', schema: SCHEMA, strict: true } },
      tools: [{ type: 'function', ...FUNCTION }],
      tool_choice: { type: 'function', name: 'get_weather' },
      parallel_tool_calls: true,
      reasoning: { effort: 'low' },
      metadata: { a: 'b' },
      background: false,
      truncation: 'auto',
    },
  },
  '/v1/messages': {
    always: { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 3 },
    sometimes: {
      model: 'any',
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Weather?', cache_control: { type: 'ephemeral' } }] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'A tool', signature: 'x' },
            { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Paris' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              content: [{ type: 'text', text: 'Sunny' }],
              is_error: false,
            },
            { type: 'document', source: { type: 'text', data: 'A page' } },
          ],
        },
      ],
      system: [{ type: 'text', text: 'Be kind', cache_control: { type: 'ephemeral' } }],
      tools: [
        { name: 'get_weather', description: 'The weather', input_schema: PARAMETERS, type: 'custom', strict: true },
      ],
      tool_choice: { type: 'tool', name: 'get_weather', disable_parallel_tool_use: true },
      thinking: { type: 'enabled', budget_tokens: 2 },
      stream: true,
      stop_sequences: ['END'],
      temperature: 0.5,
      top_p: 0.9,
      top_k: 10,
      output_config: { format: { type: 'json_schema', schema: SCHEMA } },
      output_format: { type: 'json_schema', schema: { type: 'boolean' } },
      metadata: { user_id: 'x' },
    },
  },
  '/v1/messages/count_tokens': {
    always: { messages: [{ role: 'user', content: 'Hi' }] },
    sometimes: {
      model: 'any',
      system: 'Be kind',
      tools: [{ name: 'get_weather', input_schema: PARAMETERS }],
      tool_choice: { type: 'auto', disable_parallel_tool_use: false },
      thinking: { type: 'disabled' },
    },
  },
  '/v1/embeddings': {
    always: { input: ['Once upon', 'a time'] },
    sometimes: { model: 'any', input: [[1, 2, 3], [440]], encoding_format: 'base64', dimensions: 256, user: 'someone' },
  },
}

/** Schemas of all kinds, to be broken on their own. */
export const SCHEMAS = [
  SCHEMA,
  {
    $defs: { node: { type: 'object', properties: { next: { $ref: '#/$defs/node' }, v: { type: 'integer' } } } },
    $ref: '#/$defs/node',
  },
  {
    allOf: [
      { type: 'object', properties: { a: { type: 'string' } } },
      { required: ['a'], properties: { b: {} } },
    ],
  },
  { oneOf: [{ const: 1 }, { enum: ['a', 2, null, { x: [] }] }, { type: ['string', 'null'], maxLength: 3 }] },
  { type: 'string', pattern: '^(\\d{2,3}|[a-f]+)(-\\w{1,4})?$' },
  { type: 'array', items: { type: 'number', exclusiveMinimum: 0, maximum: 9.5 }, minItems: 1, maxItems: 3 },
  { type: 'integer', minimum: -12, maximum: 3456, multipleOf: 1 },
  { type: 'object', patternProperties: { '^x-': { type: 'boolean' } }, additionalProperties: { type: 'integer' } },
  { type: 'string', format: 'date-time' },
  true,
]
/** As texts: what else may stand in a schema. */
export const SCHEMA_NAMES = [
  ...[
    'type',
    'properties',
    'required',
    'items',
    'prefixItems',
    'enum',
    'const',
    'allOf',
    'anyOf',
    'oneOf',
    'not',
    '$ref',
  ],
  ...['pattern', 'format', 'minLength', 'maxLength', 'minimum', 'maximum', 'multipleOf', 'minItems', 'maxItems', 'if'],
  ...['additionalProperties', 'patternProperties', 'uniqueItems', 'contains', '$defs', 'dependentSchemas', 'default'],
].map(name => JSON.stringify(name))
export const SCHEMA_VALUES = [
  JSON.stringify(`${'('.repeat(3000)}a${')'.repeat(3000)}`),
  ...[
    '{"$ref":"#"}',
    '{"$ref":"#/$defs/a%"}',
    '{"$ref":"#/$defs/%E0%A4%A"}',
    '{"$ref":"#/properties/~2"}',
    '"#/$defs/a"',
  ],
  ...['{"allOf":[{"$ref":"#"}]}', '{"anyOf":[]}', '{"enum":[]}', '["string","object","array"]', '"(?<=a)b"', '"(a*)*"'],
  ...[
    '"[z-a]"',
    '"\\\\"',
    '"a{5,2}"',
    '"a{99999}"',
    '"[[:alpha:]]"',
    '"^"',
    '"\\\\p{L}+"',
    '"."',
    '"unknown-format"',
    '5',
  ],
  ...[
    '{"type":"object","required":["missing"]}',
    '{"minimum":5,"maximum":1}',
    '{"minLength":9,"maxLength":1}',
    'false',
  ],
]

/** A right request of a path whose answer must take this form, with room to end. */
export function withForm(path, schema, random) {
  const limit = path === '/v1/responses' ? 'max_output_tokens' : 'max_tokens'
  const always = { ...SAMPLES[path].always, [limit]: 40, temperature: 1 }
  if (path === '/v1/responses') return { ...always, text: { format: { type: 'json_schema', name: 'x', schema } } }
  if (path === '/v1/messages') return { ...always, output_config: { format: { type: 'json_schema', schema } } }
  if (path === '/v1/completions' || random.chance(0.6)) {
    return { ...always, response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }
  }
  const parameters = random.chance(0.5) ? schema : { type: 'object', properties: { a: schema } }
  const tools = [{ type: 'function', function: { name: 'f', parameters, strict: random.chance(0.7) } }]
  return { ...always, tools, tool_choice: random.pick(['required', 'auto']) }
}

export const GET_PATHS = [
  ...[
    '/health',
    '/metrics',
    '/engine',
    '/v1/models',
    '/v1/models/x',
    '/v1/responses/resp_0',
    '/models/index.json',
    '/',
  ],
  ...['/models/demo/config.json', '/models/demo/packed_experts/layer_00.bin', '/index.html', '/nowhere'],
]
