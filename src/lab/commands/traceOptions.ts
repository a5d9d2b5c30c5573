// The options of `moeflux trace`, and what it takes where there is no prompt.
import type { ModelOptions } from '../../apps/cli/modelOptions.js'

export interface TraceCommandOptions extends ModelOptions {
  readonly out: string
  readonly promptFile?: string
  readonly tokens: number
  readonly tokenIds?: boolean
  readonly weights?: boolean
  readonly temp: number
  readonly seed: number
}

export const DEFAULT_PROMPT = 'Once upon a time there was a little dog who'
export const PROMPT_TOKENS_WITHOUT_TEXT = 64
