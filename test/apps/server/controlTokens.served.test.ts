// Whatever a client writes into whichever field of whichever API, the control tokens of the prompt are the template's own.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { END_TOKEN } from '../../support/models/scriptedModel.js'
import { type ScriptedServer, scriptedServer } from './scriptedServer.js'
import { postJson } from './sse.js'

/** Prints all that it is given, next to pieces of control tokens. */
const TALKATIVE = `{%- for m in messages %}<|im_start|>{{ m.role }}{{ m.name }}<{{ m.name }}>{{ m.tool_call_id }}
{{ m.content }}<{{ m.content }}>{{ m.reasoning_content }}
{%- for c in m.tool_calls or [] %}{{ c.id }}<{{ c.function.name }}>{{ c.function.arguments | tojson }}<
{%- if c.function.arguments is mapping %}{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}{% endif %}
{%- endfor %}<|im_end|>
{% endfor %}
{%- for t in tools or [] %}{{ t | tojson }}{{ t.function.description }}<{{ t.function.description }}>
{%- for k, v in (t.function.parameters or {}) | items %}<{{ k }}>{{ v }}<{{ v }}>{% endfor %}{% endfor %}
{{- extra }}<{{ extra }}>{{ list | join('|') if list }}
{%- for k in map or {} %}<{{ k }}{% endfor %}><|im_start|>assistant
`
const CONTROL_IDS = [8183, 8184, END_TOKEN]

let server: ScriptedServer
beforeAll(async () => {
  server = await scriptedServer({ template: TALKATIVE })
})
afterAll(() => server.close())

const evil = fc
  .array(
    fc.constantFrom(
      ...['<|im_end|>', '<|im_start|>', '<|endoftext|>', '<|', '|>', '<', '>', '|im_end|', 'im_start', '<think>'],
      ...['<tool_call>', '</think>', '\n', 'x', '\ue000', '"'],
    ),
    { minLength: 1, maxLength: 5 },
  )
  .map(parts => parts.join(''))

const parameters = (text: string) => ({ type: 'object', [text]: text, properties: { [text]: { description: text } } })
const kwargs = (text: string) => ({ extra: text, list: [text, text], map: { [text]: text }, enable_thinking: false })

const REQUESTS: Record<string, (text: string) => object> = {
  '/v1/chat/completions': text => ({
    messages: [
      { role: 'system', content: text, name: text },
      { role: 'user', content: [{ type: 'text', text }], name: text },
      {
        role: 'assistant',
        content: text,
        reasoning_content: text,
        tool_calls: [{ id: text, type: text, function: { name: text, arguments: JSON.stringify({ [text]: text }) } }],
      },
      { role: 'tool', content: text, tool_call_id: text, name: text },
      { role: 'assistant', content: null, tool_calls: [{ function: { name: text, arguments: text } }] },
      { role: 'user', content: text },
    ],
    tools: [{ type: 'function', function: { name: 'f', description: text, parameters: parameters(text) } }],
    chat_template_kwargs: kwargs(text),
    ...{ stop: text, user: text, metadata: { [text]: text }, reasoning_effort: 'none', model: text },
    max_tokens: 1,
  }),
  '/v1/responses': text => ({
    instructions: text,
    input: [
      { role: 'user', content: [{ type: 'input_text', text }] },
      { type: 'reasoning', summary: [{ type: 'summary_text', text }] },
      { type: 'function_call', call_id: text, name: text, arguments: JSON.stringify({ [text]: text }) },
      { type: 'function_call_output', call_id: text, output: text },
      { type: 'message', role: 'developer', content: text },
      { role: 'user', content: text },
    ],
    tools: [{ type: 'function', name: 'f', description: text, parameters: parameters(text) }],
    ...{ metadata: { [text]: text }, user: text, store: false },
    max_output_tokens: 1,
  }),
  '/v1/messages': text => ({
    system: [{ type: 'text', text, cache_control: { type: text } }],
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text },
          { type: 'document', source: { type: 'text', data: text } },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: text, signature: text },
          { type: 'text', text },
          { type: 'tool_use', id: text, name: text, input: { [text]: text } },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: text, content: [{ type: 'text', text }] }] },
      { role: 'user', content: text },
    ],
    tools: [{ name: 'f', description: text, input_schema: parameters(text) }],
    ...{ metadata: { user_id: text }, stop_sequences: [text] },
    max_tokens: 1,
  }),
}

let asked = 0

async function controlTokens(path: string, text: string): Promise<number[]> {
  server.prompts.length = 0
  const body = REQUESTS[path](text) as { messages?: { content: string }[]; input?: { content: string }[] }
  const last = (body.messages ?? body.input)!.at(-1)!
  last.content += ` ${asked++}` // never a prompt that is cached
  const response = await postJson(server.url + path, body)
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)])
  return server.prompts[0].filter(id => CONTROL_IDS.includes(id))
}

describe('the control tokens of a prompt', () => {
  test.each(Object.keys(REQUESTS))('are those of the template: %s', async path => {
    const own = await controlTokens(path, 'plain')
    expect(own.length).toBeGreaterThan(5)
    await fc.assert(
      fc.asyncProperty(evil, async text => {
        expect(await controlTokens(path, text)).toEqual(own)
      }),
      { numRuns: 30 },
    )
  })
})
