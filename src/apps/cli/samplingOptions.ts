// The flags that say how the next token is chosen. What is not given comes from the model's generation_config.json.
import { type Command, InvalidArgumentError } from 'commander'
import { messageOf } from '../../base/errors.js'
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
    .option('--seed <n>', 'the same seed gives the same text', integerOption(0, 0xffff_ffff))
    .option('--temp <t>', 'temperature; 0 takes the likeliest token (default: the model’s own)', numberOption(0, 100))
    .option('--top-p <p>', 'only the likeliest tokens that together have this probability', numberOption(0, 1))
    .option('--top-k <k>', 'only the k likeliest tokens; 0 for all', integerOption(0))
    .option('--min-p <p>', 'only tokens at least p times as likely as the likeliest', numberOption(0, 1))
    .option('--repeat-penalty <r>', 'above 1 makes repeats less likely', numberOption(0.01, 100))
    .option('-n, --max-tokens <n>', 'the longest answer (default: up to the context limit)', integerOption(1))
    .option('--stop <text>', 'end the answer before this text; repeatable', collectOption)
    .option('--json-schema <file|json>', 'answer in JSON that fits this schema, guaranteed', parseSchema)
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
