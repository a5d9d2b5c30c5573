// What models of other dialects bring: short chat templates in the syntax of the published ones, and the demo's tokenizer with
// the dialect's tokens in place of its own added ones.
import type { DialectName } from '#moeflux/model/families/family.js'
import { Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { demoFiles } from '../textTools.js'

const turns = (user: string, assistant: string, end: string) =>
  `{%- for m in messages %}{%- if m.role == 'user' %}${user}{%- else %}${assistant}{%- endif %}{{- '${end}' }}{%- endfor %}`

const CHATML = turns(
  `{{- '<|im_start|>user\\n' + m.content }}`,
  `{{- '<|im_start|>' + m.role + '\\n' + m.content }}`,
  '<|im_end|>\\n',
)

export const TEMPLATES: Readonly<Record<DialectName, string>> = {
  hermes: `{%- if tools %}{{- 'Answer with <tool_call>\\n{"name": n, "arguments": a}\\n</tool_call>' }}{%- endif %}${CHATML}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`,
  qwen3_5: `{%- if tools %}{{- 'Answer with <tool_call>\\n<function=n>\\n<parameter=k>\\nv\\n</parameter>' }}{%- endif %}${CHATML}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}`,
  qwen3_coder: `{%- if tools %}{{- 'Answer with <tool_call>\\n<function=n>\\n<parameter=k>\\nv\\n</parameter>' }}{%- endif %}${CHATML}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`,
  glm4: `[gMASK]<sop>{%- if tools %}<|system|>
Answer with <tool_call>n
<arg_key>k</arg_key>
<arg_value>v</arg_value>
</tool_call>{%- endif %}${turns(`{{- '<|user|>\\n' + m.content }}`, `{{- '<|assistant|>\\n<think></think>\\n' + m.content }}`, '')}
{%- if add_generation_prompt %}<|assistant|>{{- '' if enable_thinking else '\\n<think></think>' }}{%- endif %}`,
  harmony: `{{- '<|start|>system<|message|>Reasoning: ' + reasoning_effort + '<|end|>' }}
{%- for m in messages %}
{%- if m.tool_calls %}
{%- if m.content and m.thinking %}{{- raise_exception('both') }}{%- endif %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + (m.thinking or m.content or '') + '<|end|>' }}
{{- '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' }}
{{- (m.tool_calls[0].function.arguments | tojson) + '<|end|>' }}
{%- elif m.role == 'tool' %}
{{- '<|start|>functions.f to=assistant<|channel|>commentary<|message|>' + (m.content | tojson) + '<|end|>' }}
{%- elif m.role == 'assistant' %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{%- endif %}`,
}

interface TokenizerJson {
  added_tokens: { id: number; content: string; special: boolean }[]
}

// The demo's ids 8183 to 8191, two of which end its answers: 8183 and 8185.
const GLM4 = [
  ...['<|endoftext|>', '<arg_key>', '<|user|>', '<think>', '</think>', '<tool_call>', '</tool_call>', '</arg_key>'],
  '<arg_value>',
]
const HARMONY = [
  ...['<|endoftext|>', '<|start|>', '<|return|>', '<|channel|>', '<|message|>', '<|constrain|>', '<|end|>', '<|call|>'],
  '<|reserved|>',
]

/** The demo's tokenizer as a model of the dialect would have it. */
export async function dialectTokenizer(dialect: DialectName): Promise<Tokenizer> {
  const json = JSON.parse((await demoFiles()).get('tokenizer.json')!) as TokenizerJson
  const names = dialect === 'glm4' ? GLM4 : dialect === 'harmony' ? HARMONY : null
  names?.forEach((content, index) => {
    json.added_tokens[index] = { ...json.added_tokens[index], content, special: content.startsWith('<|') }
  })
  return new Tokenizer(json)
}
