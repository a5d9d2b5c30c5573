// The flags that say how the next token is chosen. What is not given comes from the model's generation_config.json.
import { Command, InvalidArgumentError } from 'commander'
import { messageOf, UsageError } from '../../base/errors.js'
import { readRegularSync } from '../../base/regularFile.js'
import type { AnswerOptions } from '../../internal.js'
import { collectOption, integerOption, numberOption } from './optionValues.js'

export interface SamplingOptions {
  readonly seed?: number
  readonly temp?: number
  readonly topP?: number
  readonly topK?: number
  readonly minP?: number
  readonly repeatPenalty?: number
  readonly maxTokens?: number
  readonly stop?: readonly string[]
  readonly jsonSchema?: object
}

export function addSamplingOptions(command: Command): Command {
  return command
    .optionsGroup('Answer:')
    .option('-n, --max-tokens <n>', 'the longest answer (default: up to the context limit)', integerOption(1))
    .option('--temp <t>', 'temperature; 0 takes the likeliest token (default: the model’s own)', numberOption(0, 100))
    .option('--seed <n>', 'the same seed gives the same text', integerOption(0, 0xffff_ffff))
    .option('--json-schema <file|json>', 'answer in JSON that fits this schema, guaranteed', parseSchema)
    .option('--stop <text>', 'end the answer before this text; repeatable', collectOption)
    .option('--top-p <p>', 'only the likeliest tokens that together have this probability', numberOption(0, 1))
    .option('--top-k <k>', 'only the k likeliest tokens; 0 for all', integerOption(0))
    .option('--min-p <p>', 'only tokens at least p times as likely as the likeliest', numberOption(0, 1))
    .option('--repeat-penalty <r>', 'above 1 makes repeats less likely', numberOption(0.01, 100))
}

/** The same in the words of a session. */
export function samplerOptions(options: SamplingOptions): AnswerOptions {
  return {
    seed: options.seed,
    temperature: options.temp,
    topP: options.topP,
    topK: options.topK,
    minP: options.minP,
    repetitionPenalty: options.repeatPenalty,
    maxTokens: options.maxTokens,
    stop: options.stop,
    responseFormat: options.jsonSchema && { type: 'json_schema', schema: options.jsonSchema },
  }
}

/** A schema as it is, or the file that holds it. */
function parseSchema(text: string): object {
  try {
    const schema: unknown = JSON.parse(text.trimStart().startsWith('{') ? text : readRegularSync(text).toString('utf8'))
    if (schema !== null && typeof schema === 'object' && !Array.isArray(schema)) return schema
  } catch (error) {
    throw new InvalidArgumentError(`Want a JSON schema or a file with one: ${messageOf(error)}.`)
  }
  throw new InvalidArgumentError('Want a JSON schema: an object.')
}

/** Names that people know from elsewhere. */
const ALIASES: Readonly<Record<string, string>> = { temperature: 'temp', 'num-predict': 'max-tokens' }

/** `/set NAME VALUE` of a chat, by the flags' own rules; 'default' takes a value back. Throws a UsageError. */
export function changeSampling(options: SamplingOptions, name: string, value: string): SamplingOptions {
  const flags = addSamplingOptions(new Command()).options
  const flag = flags.find(({ long }) => long === `--${ALIASES[name] ?? name}`)
  if (flag === undefined) {
    throw new UsageError(`/set ${name}: want one of ${flags.map(({ long }) => long?.slice(2)).join(', ')}, system`)
  }
  const key = flag.attributeName() as keyof SamplingOptions
  if (value === 'default') return { ...options, [key]: undefined }
  try {
    return { ...options, [key]: flag.parseArg?.(value, options[key] as never) }
  } catch (error) {
    throw new UsageError(`/set ${name}: got '${value}'. ${messageOf(error)}`)
  }
}

/** The settings by the names of their flags. */
export function samplingFields(options: SamplingOptions): [string, string][] {
  return addSamplingOptions(new Command()).options.map(flag => {
    const value = options[flag.attributeName() as keyof SamplingOptions]
    return [flag.long?.slice(2) ?? '', value === undefined ? 'default' : JSON.stringify(value)]
  })
}
