// What `moeflux trace` does: evaluates a prompt, generates, and keeps every step's routing and the engine's own counts.
// Nothing is read ahead meanwhile, so that the counts are those of the cache alone.
import { open, realpath, rm, stat, writeFile } from 'node:fs/promises'
import type { Cli } from '../../apps/cli/action.js'
import { formatBytes, formatInteger, formatPercent } from '../../apps/cli/format.js'
import { openCliModel } from '../../apps/cli/openCliModel.js'
import { readPromptIfAny } from '../../apps/cli/promptInput.js'
import { UsageError } from '../../base/errors.js'
import { readRegular } from '../../base/regularFile.js'
import { writing } from '../../files/diskFull.js'
import type { Model } from '../../index.js'
import { Sampler } from '../../text/sampling/sampler.js'
import { loadTokenizer } from '../../text/tokenizer/tokenizer.js'
import { TokenStream } from '../bench/tokenSource.js'
import { checkContextRoom } from '../checkContextRoom.js'
import { DEFAULT_PROMPT, PROMPT_TOKENS_WITHOUT_TEXT, type TraceCommandOptions } from '../commands/traceOptions.js'
import { encodeTrace, type TraceStep } from './routingTrace.js'

export async function recordTrace(cli: Cli, words: readonly string[], options: TraceCommandOptions): Promise<void> {
  if (words.length > 0 && options.promptFile !== undefined) {
    throw new UsageError('give either a prompt or --prompt-file')
  }
  const { promptFile } = options
  const text =
    promptFile === undefined
      ? await readPromptIfAny({ words, signal: cli.signal, onWait: line => cli.notice(line) })
      : (await readRegular(promptFile)).toString('utf8')
  if (text?.trim() === '') throw new UsageError('the prompt is empty')
  await checkWritable(options.out)
  const model = await openCliModel(cli, { ...options, prefetch: options.backend === 'reference' })
  try {
    const [first] = model.config.moeLayers
    if (first === undefined) throw new UsageError(`${model.name} has no experts: there is nothing to trace`)
    const record = (await model.readExpert(first, 0)).length
    const { steps, decodeSeconds } = await evaluate(cli, model, text, options)
    const stats = model.stats()
    const bytes = encodeTrace({
      model: model.name,
      layers: model.config.moeLayers.length,
      experts: model.config.numExperts,
      expertsPerToken: model.expertsPerToken,
      expertBytes: record,
      engine: {
        backend: model.backend,
        policy: model.backend === 'reference' ? 'lru' : 'lrfu',
        slots: stats.expertSlots,
        hits: stats.expertHits,
        misses: stats.expertMisses,
        computeSecondsPerToken: decodeSeconds / options.tokens,
      },
      steps,
    })
    await writing(options.out, () => writeFile(options.out, bytes))
    const tokens = steps.reduce((sum, step) => sum + step.tokens, 0)
    const rate = stats.expertHits / (stats.expertHits + stats.expertMisses)
    cli.notice(
      `${options.out}: ${formatInteger(tokens)} tokens in ${steps.length} steps, ${formatBytes(bytes.length)}; ` +
        `the engine's cache of ${formatInteger(stats.expertSlots)} experts had ${formatPercent(rate)} hits`,
    )
  } finally {
    await model.close()
  }
}

async function evaluate(
  cli: Cli,
  model: Model,
  text: string | null,
  options: TraceCommandOptions,
): Promise<{ steps: TraceStep[]; decodeSeconds: number }> {
  const tokenizer = await loadTokenizer(model.folder, model.vocabSize)
  const stream = new TokenStream(model.vocabSize, options.seed)
  if (!tokenizer && text !== null) throw new UsageError('this model has no tokenizer, so it takes no prompt')
  const prompt = tokenizer?.encode(text ?? DEFAULT_PROMPT) ?? stream.take(PROMPT_TOKENS_WITHOUT_TEXT)
  if (text === null) cli.notice(`no prompt given; starting with ${tokenizer ? `'${DEFAULT_PROMPT}'` : 'random tokens'}`)
  checkContextRoom(model, prompt.length, options.tokens)
  const sampler = new Sampler({ temperature: options.temp, seed: options.seed })
  const context = model.createContext({ maxCheckpoints: 0 })
  const bar = cli.progressBar('tokens')
  const steps: TraceStep[] = []
  const total = prompt.length + options.tokens
  const run = async (tokens: readonly number[]) => {
    const before = context.length
    const { routing, logits } = await context.evaluate(tokens, {
      routing: options.weights ? 'weights' : true,
      signal: cli.signal,
      onProgress: done => bar.update({ phase: 'tracing', loaded: before + done, total }),
    })
    let at = 0
    for (const step of routing) {
      const ids = Uint32Array.from(tokens.slice(at, at + step.tokens))
      steps.push(options.tokenIds ? { ...step, ids } : step)
      at += step.tokens
    }
    return logits as Float32Array
  }
  let logits = await run(prompt)
  const before = model.stats()
  const began = performance.now()
  for (let i = 0; i < options.tokens; i++) logits = await run([tokenizer ? sampler.sample(logits) : stream.next()])
  const stalled = model.stats().stallSeconds - before.stallSeconds
  bar.clear()
  await context.close()
  return { steps, decodeSeconds: Math.max(0, (performance.now() - began) / 1000 - stalled) }
}

/** Tells before long work that its result could not be written. Leaves what is there as it is, and nothing new. */
async function checkWritable(path: string): Promise<void> {
  const info = await stat(path).catch(() => null)
  // Who reads from a pipe would see it opened and closed.
  if (info !== null && !info.isFile() && !info.isDirectory()) return
  await (await open(path, 'a')).close()
  if (info === null) await rm(await realpath(path)) // a link that led nowhere stays
}
