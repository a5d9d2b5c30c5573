// The text side of a model's folder: tokenizer, chat template, and what its makers say of sampling.
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { readGenerationConfig } from '#moeflux/text/sampling/generationConfig.js'
import { loadChatTemplate } from '#moeflux/text/template/chatTemplate.js'
import { loadTokenizer, Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'
import { startNodeTextWorker } from '#moeflux/text/workers/nodeStartTextWorker.js'
import { TextWorkers } from '#moeflux/text/workers/textWorkers.js'
import { withCaseFolder, workFolder } from '../caseFolder.mjs'
import { breakText, brokenJson } from '../mutateJson.mjs'
import { demoModel, parsed } from './material.mjs'
import { Wrong } from './wrong.mjs'

const VOCABULARY = 8192
const SAMPLE = 'Hello, wörld! 👩‍👩‍👧 <|im_end|>\n\n12345 \ud800'
const TEMPLATE_MS = 1000

export function textReaders() {
  const empty = workFolder('empty')
  mkdirSync(empty, { recursive: true })
  const inFolder = (files, use) =>
    withCaseFolder(empty, files, async path => use(await openNodeFolder(path, { links: 'any' })))
  const tokenizer = smallTokenizer()
  const tokenizerConfig = parsed(readFileSync(join(demoModel, 'tokenizer_config.json')))
  return {
    tokenizer: tokenizerReader(inFolder, tokenizer, tokenizerConfig),
    'generation config': generationReader(inFolder),
    template: templateReader(inFolder, tokenizer, tokenizerConfig),
  }
}

function tokenizerReader(inFolder, tokenizer, config) {
  const files = (json, configJson) =>
    new Map([
      ['tokenizer.json', json],
      ['tokenizer_config.json', configJson],
    ])
  return {
    valid: files(JSON.stringify(tokenizer), JSON.stringify(config)),
    make: random => {
      const configText = random.chance(0.3) ? brokenJson(config, random) : JSON.stringify(config)
      return files(brokenJson(tokenizer, random), configText)
    },
    read: changed =>
      inFolder(changed, async folder => {
        const found = await loadTokenizer(folder, VOCABULARY)
        const ids = found?.encode(SAMPLE) ?? []
        const isId = id => Number.isInteger(id) && id >= 0 && id < VOCABULARY
        if (!ids.every(isId)) throw new Wrong(`encodes into ${ids.find(id => !isId(id))}`)
        found?.decode(ids)
        found?.decode([0, 1, found.vocabSize - 1])
      }),
    names: ['tokenizer'],
  }
}

function generationReader(inFolder) {
  const generation = parsed(readFileSync(join(demoModel, 'generation_config.json')))
  const files = text => new Map([['generation_config.json', text]])
  return {
    valid: files(JSON.stringify(generation)),
    make: random => files(brokenJson(generation, random)),
    read: changed =>
      inFolder(changed, async folder => {
        for (const [name, value] of Object.entries(await readGenerationConfig(folder))) {
          if (value !== undefined && !Number.isFinite(value)) throw new Wrong(`${name} is ${value}`)
        }
      }),
    names: ['generation_config.json'],
  }
}

function templateReader(inFolder, tokenizer, config) {
  const template = readFileSync(join(demoModel, 'chat_template.jinja'), 'utf8')
  const limits = { milliseconds: TEMPLATE_MS, characters: 2 ** 20 }
  const workers = new TextWorkers(startNodeTextWorker, new Tokenizer(tokenizer, config), limits)
  const files = (name, text) =>
    new Map([
      ['tokenizer.json', JSON.stringify(tokenizer)],
      [name, text],
    ])
  return {
    valid: files('chat_template.jinja', template),
    make(random) {
      if (!random.chance(0.3)) return files('chat_template.jinja', brokenTemplate(template, random))
      const chat_template = random.pick([template, [{ name: 'default', template }]])
      return files('tokenizer_config.json', brokenJson({ ...config, chat_template }, random))
    },
    read: changed =>
      inFolder(changed, async folder => {
        const loaded = await loadChatTemplate(folder, workers)
        const messages = [
          { role: 'system', content: 'Be kind' },
          { role: 'user', content: 'Hi <|im_end|>' },
        ]
        await loaded?.render({ messages }, { places: [{ message: 1, characters: 2 }], nextTurn: true })
      }),
    names: ['template', 'tokenizer'],
    limitMs: 4 * TEMPLATE_MS, // it may be tried twice, and a worker that was ended starts anew
    close: () => workers.close(),
  }
}

/** The demo's, with few enough entries to be changed thousands of times, and numbered anew. */
function smallTokenizer() {
  const file = parsed(readFileSync(join(demoModel, 'tokenizer.json')))
  const texts = Object.keys(file.model.vocab).filter((text, i) => [...text].length === 1 || i < 400)
  const vocab = Object.fromEntries(texts.map((text, id) => [text, id]))
  const merges = file.model.merges.filter(merge => {
    const [left, right] = Array.isArray(merge) ? merge : merge.split(' ')
    return left in vocab && right in vocab && left + right in vocab
  })
  const added_tokens = file.added_tokens.map((token, i) => ({ ...token, id: texts.length + i }))
  return { ...file, added_tokens, model: { ...file.model, vocab, merges } }
}

const TEMPLATE_BOMBS = [
  '{%- for i in range(10 ** 9) -%}x{%- endfor -%}',
  "{{ 'x' * 10 ** 9 }}",
  '{%- set x = messages -%}{%- for i in range(40) -%}{%- set x = x + x -%}{%- endfor -%}',
  '{{ raise_exception("no") }}',
  '{{ messages[0].constructor.constructor("return 1")() }}',
  '{{ messages | tojson | tojson | length }}',
  '{%- macro f(x) -%}{{ f(x) }}{%- endmacro -%}{{ f(1) }}',
  '{{ none.x.y }}',
  `{{ ${'('.repeat(3000)}1${')'.repeat(3000)} }}`,
  `{{ ${'['.repeat(3000)}${']'.repeat(3000)} }}`,
]

function brokenTemplate(template, random) {
  const pieces = template.split(/(\{%.*?%\}|\{\{.*?\}\})/s)
  const at = random.below(pieces.length)
  return random.weighted([
    [3, () => breakText(template, random)],
    [3, () => pieces.toSpliced(at, 1).join('')],
    [2, () => pieces.toSpliced(at, 0, random.pick(pieces)).join('')],
    [2, () => pieces.toSpliced(at, 0, random.pick(TEMPLATE_BOMBS)).join('')],
    [1, () => pieces.toReversed().join('')],
    [1, () => random.pick(TEMPLATE_BOMBS)],
  ])()
}
