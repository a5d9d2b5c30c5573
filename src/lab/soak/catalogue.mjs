// Requests that have one right answer each: greedy ones, and sampled ones with a seed. They are asked of a quiet server
// with one thread before the soak, and every answer that the soaked server gives to one of them must be the same, be it
// streamed or whole, computed alone or beside others, from the start or from a kept prefix.

const STORIES = [
  'Tell me a story about a girl named Mia',
  'Tell me a story about a little dog and a big red ball',
  'Who are you?',
  'Tell me about an old clock in a tower',
]
const SYSTEM = `You tell short stories to children. ${'You are kind, you use simple words, and you never scare anybody. '.repeat(6)}`
const LONG_STORY = 'Once there was a small house near the lake where a boy and his cat lived with a friend. '

const WEATHER = {
  name: 'get_weather',
  description: 'The weather in a city',
  parameters: { type: 'object', properties: { city: { type: 'string', maxLength: 20 } }, required: ['city'] },
}
const ADD = {
  name: 'add',
  description: 'Adds two numbers',
  parameters: {
    type: 'object',
    properties: { a: { type: 'integer', minimum: 0, maximum: 999 }, b: { type: 'integer', minimum: 0, maximum: 999 } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
}

/** Schemas as people send them; answers are checked against them too. */
export const SCHEMAS = {
  person: {
    type: 'object',
    properties: {
      name: { type: 'string', maxLength: 12 },
      age: { type: 'integer', minimum: 0, maximum: 120 },
      pet: { enum: ['dog', 'cat', null] },
    },
    required: ['name', 'age', 'pet'],
    additionalProperties: false,
  },
  list: {
    type: 'array',
    items: { type: 'object', properties: { word: { type: 'string', maxLength: 8 } }, required: ['word'] },
    maxItems: 3,
  },
  tree: {
    $defs: {
      node: {
        type: 'object',
        properties: { value: { type: 'integer' }, next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] } },
        required: ['value', 'next'],
        additionalProperties: false,
      },
    },
    $ref: '#/$defs/node',
  },
  code: { type: 'string', pattern: '^[A-Z]{2}-[0-9]{3,4}$' },
}

const user = content => ({ role: 'user', content })
const jsonFormat = schema => ({ type: 'json_schema', json_schema: { name: 'answer', schema } })

export function catalogue() {
  const entries = []
  const add = (name, path, body, more = {}) => entries.push({ name, path, body, ...more })
  const chat = (name, body, more) =>
    add(name, '/v1/chat/completions', { temperature: 0, max_tokens: 24, ...body }, more)

  STORIES.forEach((story, i) => {
    chat(`chat ${i}`, { messages: [user(story)] })
    chat(`chat with a system prompt ${i}`, { messages: [{ role: 'system', content: SYSTEM }, user(story)] })
    chat(`chat with a seed ${i}`, { messages: [user(story)], temperature: 0.8, top_p: 0.9, seed: 100 + i })
    add(`completion ${i}`, '/v1/completions', { prompt: story, temperature: 0, max_tokens: 20 })
    add(`response ${i}`, '/v1/responses', {
      input: story,
      instructions: SYSTEM,
      temperature: 0,
      max_output_tokens: 20,
      store: false,
    })
    add(`message ${i}`, '/v1/messages', {
      system: [{ type: 'text', text: SYSTEM, cache_control: { type: 'ephemeral' } }],
      messages: [user(story)],
      temperature: 0,
      max_tokens: 20,
    })
  })
  const turns = [user(STORIES[0])]
  for (let turn = 1; turn <= 3; turn++) {
    turns.push(
      { role: 'assistant', content: `Story ${turn}: Mia went to the park with her mom.` },
      user('Tell me more'),
    )
    chat(`conversation of ${turns.length} messages`, { messages: [...turns] })
    add(`Anthropic conversation of ${turns.length} messages`, '/v1/messages', {
      messages: [...turns],
      temperature: 0,
      max_tokens: 16,
    })
  }
  for (const [name, schema] of Object.entries(SCHEMAS)) {
    chat(
      `schema ${name}`,
      { messages: [user('JSON please')], response_format: jsonFormat(schema), max_tokens: 60 },
      { schema },
    )
  }
  add(
    'message with a schema',
    '/v1/messages',
    {
      messages: [user('JSON please')],
      output_config: { format: { type: 'json_schema', schema: SCHEMAS.person } },
      temperature: 0,
      max_tokens: 60,
    },
    { schema: SCHEMAS.person },
  )
  const tool = definition => ({ type: 'function', function: { ...definition, strict: true } })
  chat('a tool that must be called', {
    messages: [user('What is the weather in Paris?')],
    tools: [tool(WEATHER), tool(ADD)],
    tool_choice: 'required',
    max_tokens: 60,
  })
  chat('a tool by its name', {
    messages: [user('Add 12 and 30')],
    tools: [tool(WEATHER), tool(ADD)],
    tool_choice: { type: 'function', function: { name: 'add' } },
    max_tokens: 60,
  })
  chat('tools that may be called', {
    messages: [user('What is the weather in Paris?')],
    tools: [tool(WEATHER)],
    max_tokens: 40,
  })
  add('message with a tool', '/v1/messages', {
    messages: [user('What is the weather in Paris?')],
    tools: [{ name: WEATHER.name, description: WEATHER.description, input_schema: WEATHER.parameters }],
    tool_choice: { type: 'any' },
    temperature: 0,
    max_tokens: 60,
  })
  chat('thinking', { messages: [user(STORIES[0])], reasoning_effort: 'low', thinking_budget: 12, max_tokens: 32 })
  chat('three choices', { messages: [user(STORIES[1])], n: 3, temperature: 1, seed: 5, max_tokens: 12 })
  chat('a stop sequence', { messages: [user(STORIES[1])], stop: ['.', 'dog'], max_tokens: 40 })
  chat('a grammar', { messages: [user('yes or no?')], grammar: 'root ::= "yes" | "no" | "maybe " [a-z]{2,5}' })
  for (const repetitions of [20, 60]) {
    chat(`a prompt of ${repetitions} sentences`, { messages: [user(LONG_STORY.repeat(repetitions))], max_tokens: 8 })
  }
  return entries
}
