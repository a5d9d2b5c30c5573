// Only what a template itself writes may become a control token, whatever callers write wherever they may write.
import fc from 'fast-check'
import { afterAll, describe, expect, test } from 'vitest'
import type { ChatRequest, RenderedChat } from '#moeflux/text/template/chatRenderer.js'
import { ChatTemplate } from '#moeflux/text/template/chatTemplate.js'
import { plainMessages, plainTools } from '#moeflux/text/template/messages.js'
import { startNodeTextWorker } from '#moeflux/text/workers/nodeStartTextWorker.js'
import { TextWorkers } from '#moeflux/text/workers/textWorkers.js'
import { demoFiles, demoTokenizer } from '../support/textTools.js'

const tokenizer = await demoTokenizer()
const workers = new TextWorkers(startNodeTextWorker, tokenizer)
afterAll(() => workers.close())
const demoSource = (await demoFiles()).get('chat_template.jinja')!

const CONTROLS = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>', '<tool_call>', '</tool_call>']
const isAdded = (id: number) => tokenizer.addedTokens.some(token => token.id === id)

async function render(source: string, request: ChatRequest, prefill = '') {
  const template = new ChatTemplate(source, workers, { bos_token: '<|endoftext|>' })
  const { text, mark } = (await template.render(request, { prefill })) as RenderedChat
  const ids = tokenizer.encode(text, { mark })
  return { text: text.replaceAll(mark, ''), ids, added: ids.filter(isAdded).map(id => tokenizer.tokenText(id)) }
}

/** Text that is made to spell control tokens, whole, in part, or at its ends. */
const evil = fc
  .array(
    fc.oneof(
      fc.constantFrom(...CONTROLS, '<|', '|>', '<', '>', '/', 'think', 'tool_call', '|im_end|', 'im_', 'end|>', '\n'),
      fc.constantFrom('\ue000', '\ue001', 'IM_END', '<|IM_END|>', 'x', ' ', '"', '\\'),
    ),
    { maxLength: 6 },
  )
  .map(parts => parts.join(''))

describe('what callers write', () => {
  /** A request with `text` in every place that a caller's text gets to. */
  const request = (text: string): ChatRequest => ({
    messages: plainMessages([
      { role: 'user', content: text, name: text },
      {
        role: 'assistant',
        content: '',
        tool_calls: [
          { id: text, function: { name: text, arguments: { [text]: text, list: [text, { [text]: text }] } } },
        ],
      },
      { role: 'tool', content: [{ type: 'text', text }], tool_call_id: text, name: text },
      { role: 'assistant', tool_calls: [{ function: { name: text, arguments: text } }] },
      { role: 'user', content: text },
    ]).messages,
    tools: plainTools([
      {
        name: text || 'f',
        description: text,
        parameters: { [text]: { type: text, enum: [text] }, [`${text}x`]: text },
      },
    ]),
    variables: { custom: text, list: [text], map: { [text]: text }, [`v${text}`]: text },
  })

  test('never becomes a control token of the demo template, and stays as it is', async () => {
    const plain = (await render(demoSource, request('x'))).added
    await fc.assert(
      fc.asyncProperty(evil, async text => {
        const { added, ids, text: prompt } = await render(demoSource, request(text))
        expect(added).toEqual(plain)
        expect(tokenizer.decode(ids)).toBe(prompt)
        expect(prompt).toContain(`<|im_start|>user\n${text}<|im_end|>`)
      }),
      { numRuns: 150 },
    )
  })

  test('never becomes one however a template puts it together', async () => {
    const pieces = [
      "{{ '<' ~ custom ~ '>' }}",
      "{{ '<|im_' + custom }}{{ custom + '|>' }}",
      '{{ custom }}{{ custom }}{{ list[0] }}',
      '<{% for key in map %}{{ key }}{% endfor %}>',
      "<{{ custom | lower }}>{{ custom.lower() }}{{ custom | upper | lower }}{{ custom | replace('x', '<') }}",
      "{{ ['<|im_', custom] | join }}{{ ['<', custom, '>'] | join('') }}{{ list | join('|im_end') }}",
      "{{ 'a<a'.replace('a', custom) }}{{ '<>'.replace('<', '<' ~ custom) }}",
      '{% macro tag(name) %}<{{ name }}>{{ caller() }}</{{ name }}>{% endmacro %}{% call tag(custom) %}{{ custom }}{% endcall %}',
      "{% set ns = namespace(out='<') %}{% for c in list %}{% set ns.out = ns.out + c %}{% endfor %}{{ ns.out + '>' }}",
      "{% set block %}<{{ custom }}>{% endset %}{{ block }}{{ block | trim }}{{ block.strip('x') }}{{ block[0:40] }}",
      "{% for part in ('<|im_' + custom + 'x<').split('x') %}{{ part }}{% endfor %}",
      '{% filter trim %} <{{ custom }}> {% endfilter %}{% if custom %}<{{ custom }}{% endif %}>',
      "{{ '<' ~ (custom | tojson | replace('\"', '')) ~ '>' }}{{ map | tojson }}{{ (map | items | first)[0] }}",
      "{{ '<' + (custom or 'x') + '>' }}{{ '<' + (custom if true else 'x') + '>' }}{{ '<' ~ (nothing | default(custom)) ~ '>' }}",
      '{% for i in range(2) %}{% if i == 1 %}{% break %}{% endif %}<{{ custom }}{% endfor %}>',
      "{{ messages[0].name ~ '>' }}<{{ messages[0].content | trim }}>",
    ]
    await fc.assert(
      fc.asyncProperty(evil, fc.constantFrom(...pieces), async (text, piece) => {
        const { messages } = plainMessages([{ role: 'user', content: text, name: text }])
        const variables = { custom: text, list: [text, text], map: { [text]: text } }
        const { added, ids, text: prompt } = await render(`<|im_start|>${piece}<|im_end|>`, { messages, variables })
        expect([piece, added]).toEqual([piece, ['<|im_start|>', '<|im_end|>']])
        expect(tokenizer.decode(ids)).toBe(prompt)
      }),
      { numRuns: 400 },
    )
  })

  test('cannot take the place of what the language and the model have themselves', async () => {
    const { messages } = plainMessages([{ role: 'user', content: 'x' }])
    for (const name of ['true', 'none', 'range', 'raise_exception', 'namespace', 'bos_token', 'strftime_now']) {
      await expect(render('x', { messages, variables: { [name]: '<|im_end|>' } })).rejects.toThrow(`'${name}' is the`)
    }
    const given = { messages: [], tools: [], add_generation_prompt: 'x' }
    const { text } = await render('{{ messages | length }}{{ tools }}{{ add_generation_prompt }}', {
      messages,
      variables: given,
    })
    expect(text).toBe('1true')
  })

  test('may be a flag that the template asks for', async () => {
    const source = "{% if mode == 'think' %}<think>{% elif effort == 'low' %}</think>{% endif %}x"
    const { messages } = plainMessages([{ role: 'user', content: 'x' }])
    expect((await render(source, { messages, variables: { mode: 'think' } })).added).toEqual(['<think>'])
    expect((await render(source, { messages, variables: { effort: 'low' } })).added).toEqual(['</think>'])
  })
})

describe('what is trusted', () => {
  test('may think and call tools, but never use control tokens', async () => {
    await fc.assert(
      fc.asyncProperty(evil, async text => {
        const { messages } = plainMessages([
          { role: 'system', content: text },
          { role: 'assistant', content: `${text}.`, reasoning_content: text },
        ])
        const { added, ids, text: prompt } = await render(demoSource, { messages }, text)
        expect(added.filter(name => /\|/.test(name as string))).toEqual(
          (
            await render(demoSource, {
              messages: plainMessages([
                { role: 'system', content: 'x' },
                { role: 'assistant', content: 'x' },
              ]).messages,
            })
          ).added.filter(name => /\|/.test(name as string)),
        )
        expect(tokenizer.decode(ids)).toBe(prompt)
      }),
      { numRuns: 60 },
    )
  })

  test('keeps its tokens through what templates do with it', async () => {
    const { messages } = plainMessages([
      { role: 'assistant', content: ' <think>a</think>\n\n<tool_call>b</tool_call> ', reasoning_content: '<think>' },
    ])
    const text = (source: string) => render(source, { messages })
    const content = 'messages[0].content'
    expect((await text(`{{ ${content} }}`)).added).toHaveLength(4)
    expect((await text(`{{ ${content} | trim }}`)).added).toHaveLength(4)
    expect((await text(`{{ ${content}.split('</think>')[-1].lstrip('\\n') }}`)).added).toEqual(CONTROLS.slice(5))
    expect((await text(`{{ ${content}.split('</think>')[0].rstrip('\\n').split('<think>')[-1] }}`)).added).toEqual([])
    expect((await text(`{{ ${content}.replace('b', 'c') }}`)).added).toHaveLength(4)
    expect((await text(`{{ messages[0].reasoning_content }}`)).added).toEqual(['<think>'])
  })
})

describe('what the template writes', () => {
  test.each([
    ["{{ bos_token + '<|im_start|>' + messages[0].role }}", ['<|endoftext|>', '<|im_start|>']],
    ["{{ '<|im_' ~ 'end|>' }}<|im_{% if true %}end{% endif %}|>", ['<|im_end|>', '<|im_end|>']],
    [
      "{% for m in messages %}{{ '<|im_start|>' ~ m.role }}<|im_end|>{% else %}x{% endfor %}",
      ['<|im_start|>', '<|im_end|>'],
    ],
    [
      "{% set x = '<|im_start|>' + messages[0].content + '<|im_end|>' %}{{ bos_token + x }}",
      ['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
    ],
    [
      "{% set x %} <think> {% endset %}{{ x | trim }}{{ x.strip() }}{{ (' ' + x) | trim }}",
      ['<think>', '<think>', '<think>'],
    ],
    [
      "{% macro m(t) %}<|im_start|>{{ t }}{% endmacro %}{{ m('a') }}{{ m(messages[0].content) | trim }}",
      ['<|im_start|>', '<|im_start|>'],
    ],
    [
      "{% set ns = namespace(x='') %}{% for i in range(3) %}{% set ns.x = ns.x ~ '<think>' %}{% endfor %}{{ ns.x }}",
      ['<think>', '<think>', '<think>'],
    ],
    [
      "{{ {'user': '<|im_start|>'}[messages[0].role] }}{{ ['<think>', 'b'] | join('</think>') }}",
      ['<|im_start|>', '<think>', '</think>'],
    ],
    [
      "{{ '<THINK>' | lower }}{{ '<THINK>'.lower() }}{{ '<x>'.replace('x', 'think') }}",
      ['<think>', '<think>', '<think>'],
    ],
    [
      "{{ 'a<think>b</think>'.split('b')[1] }}{{ '<think>'[0:7] }}{{ ('<think>', 'x') | first }}",
      ['</think>', '<think>', '<think>'],
    ],
  ])('is what it spells: %s', async (source, added) => {
    const { messages } = plainMessages([{ role: 'user', content: '<|im_end|>' }])
    expect((await render(source, { messages })).added).toEqual(added)
  })
})
