// Turns a prompt into tokens, shows the answer while it is made, and says in one line how fast that was.
import { MoefluxError } from '../errors.js'
import type { Model } from '../session/openModel.js'
import { loadChatTemplate } from '../text/chatTemplate.js'
import { readGenerationConfig } from '../text/generationConfig.js'
import type { PlainMessage } from '../text/messages.js'
import { startNodeTemplateWorker } from '../text/nodeTemplateWorker.js'
import { Sampler } from '../text/sampler.js'
import type { SplitEvent } from '../text/splitter.js'
import { TemplateRenderer } from '../text/templateRenderer.js'
import { loadTokenizer, type Tokenizer } from '../text/tokenizer.js'
import type { Cli } from './action.js'
import { formatPercent, threeDigits } from './format.js'
import { type Generated, generate } from './generate.js'
import type { SamplingOptions } from './samplingOptions.js'

export interface AnswerRequest extends SamplingOptions {
  readonly prompt: string
  readonly system?: string
  readonly think?: boolean
  readonly raw?: boolean
}

interface Prompt {
  readonly tokens: readonly number[]
  readonly insideThinking: boolean
}

export async function answerPrompt(cli: Cli, model: Model, request: AnswerRequest): Promise<void> {
  const tokenizer = await loadTokenizer(model.folder, model.vocabSize)
  if (tokenizer === null) throw new MoefluxError('NO_TOKENIZER', `${model.folder.location}: has no tokenizer.json`)
  const prompt = request.raw
    ? { tokens: tokenizer.encode(request.prompt), insideThinking: false }
    : await chatPrompt(model, tokenizer, request)
  const defaults = await readGenerationConfig(model.folder)
  const context = model.createContext({ maxCheckpoints: 0 })
  const bar = cli.progressBar('tokens')
  const answer = generate({
    context,
    contextLength: model.contextLength,
    tokenizer,
    sampler: new Sampler({
      temperature: request.temp ?? defaults.temperature,
      topK: request.topK ?? defaults.topK,
      topP: request.topP ?? defaults.topP,
      minP: request.minP ?? defaults.minP,
      repetitionPenalty: request.repeatPenalty ?? defaults.repetitionPenalty,
      seed: request.seed,
    }),
    eosTokenIds: model.eosTokenIds,
    prompt: prompt.tokens,
    splitter: {
      insideThinking: prompt.insideThinking,
      thinking: !request.raw,
      toolCalls: false,
      stop: request.stop,
    },
    maxTokens: request.maxTokens,
    signal: cli.signal,
    onPromptProgress: (loaded, total) => bar.update({ phase: 'reading the prompt', loaded, total }),
  })
  const generated = await show(cli, answer)
  closingLines(cli, model, generated)
}

async function chatPrompt(model: Model, tokenizer: Tokenizer, request: AnswerRequest): Promise<Prompt> {
  const renderer = new TemplateRenderer(startNodeTemplateWorker)
  try {
    const template = await loadChatTemplate(model.folder, tokenizer, renderer)
    if (template === null) {
      throw new MoefluxError('NO_TEMPLATE', `${model.folder.location}: has no chat template; --raw works without one`)
    }
    const messages: PlainMessage[] = [{ role: 'user', content: request.prompt }]
    if (request.system !== undefined) messages.unshift({ role: 'system', content: request.system })
    const { text, mark } = await template.render({ messages, thinking: request.think })
    return { tokens: tokenizer.encode(text, { mark }), insideThinking: /<think>\s*$/.test(text) }
  } finally {
    await renderer.close()
  }
}

/** Text to stdout and thoughts to stderr, each ended by a newline. */
async function show(cli: Cli, answer: AsyncGenerator<SplitEvent, Generated>): Promise<Generated> {
  let lastText = '\n'
  let lastThought = '\n'
  try {
    for (;;) {
      const { value, done } = await answer.next()
      if (done) return value
      if (value.type === 'text') {
        if (lastThought !== '\n') cli.errorText('\n\n')
        lastThought = '\n'
        await cli.print(value.text)
        lastText = value.text
      } else if (value.type === 'thinking') {
        if (!cli.quiet) cli.errorText(cli.dim(value.text))
        lastThought = value.text
      }
    }
  } finally {
    if (lastThought !== '\n') cli.errorText('\n')
    if (!lastText.endsWith('\n')) await cli.print('\n')
  }
}

function closingLines(cli: Cli, model: Model, generated: Generated): void {
  const { ended, promptTokens, promptSeconds, answerTokens, answerSeconds } = generated
  if (ended === 'maxTokens') cli.notice(`stopped after ${answerTokens} tokens (--max-tokens)`)
  if (ended === 'context') cli.notice(`stopped: the context of ${model.contextLength} tokens is full`)
  const rate = (tokens: number, seconds: number) => `${threeDigits(tokens / Math.max(seconds, 1e-3))} tok/s`
  const parts = [
    `${answerTokens} tokens, ${rate(answerTokens, answerSeconds)}`,
    `prompt ${promptTokens} tokens, ${rate(promptTokens, promptSeconds)}`,
  ]
  const { expertHits, expertMisses } = model.stats()
  if (expertHits + expertMisses > 0) {
    parts.push(`${formatPercent(expertHits / (expertHits + expertMisses))} of experts were in memory`)
  }
  cli.notice(cli.dim(parts.join(' · ')))
}
