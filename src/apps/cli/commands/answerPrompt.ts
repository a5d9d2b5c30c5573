// One prompt, one answer: from the flags of `run` to the lines that close it.
import type { Model } from '../../../index.js'
import type { Cli } from '../action.js'
import { showAnswer, speedLine } from '../printAnswer.js'
import { type SamplingOptions, samplerOptions } from '../samplingOptions.js'

export interface PromptToAnswer extends SamplingOptions {
  readonly prompt: string
  readonly system?: string
  readonly think?: boolean
  readonly raw?: boolean
}

export async function answerPrompt(cli: Cli, model: Model, request: PromptToAnswer): Promise<void> {
  const session = model.createSession({ maxSequences: 1 })
  const bar = cli.progressBar('tokens')
  const options = {
    ...samplerOptions(request),
    signal: cli.signal,
    onPromptProgress: (loaded: number, total: number) => bar.update({ phase: 'reading the prompt', loaded, total }),
  }
  const { prompt, system } = request
  const messages = [
    ...(system === undefined ? [] : [{ role: 'system', content: system }]),
    { role: 'user', content: prompt },
  ]
  const events = request.raw
    ? session.complete({ ...options, prompt })
    : session.chat({ ...options, messages, thinking: request.think })
  const before = model.stats()
  const { usage, reason } = await showAnswer(cli, events)
  if (usage === null) return
  if (reason === 'length') {
    const wanted = usage.answerTokens === request.maxTokens
    cli.notice(
      wanted
        ? `stopped after ${usage.answerTokens} tokens (--max-tokens)`
        : `stopped: the context of ${model.contextLength} tokens is full`,
    )
  }
  cli.notice(cli.dim(speedLine(usage, before, model.stats())))
}
