// Names alone, for help texts and types: the shapes behind them are in presets.ts.
export const presetNames = [
  'a3b',
  'a17b',
  'qwen3.5-4b',
  'qwen3.8-27b',
  'qwen3-30b-a3b',
  'qwen3-coder-next',
  'glm-4.5-air',
  'gpt-oss-20b',
  'gpt-oss-120b',
] as const

export type PresetName = (typeof presetNames)[number]

/** Tokens of a sequence that memory is planned for where nobody says how long it will be. */
export const PLANNED_TOKENS = 4096
