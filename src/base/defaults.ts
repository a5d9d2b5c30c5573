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

// What a machine does in a second where nobody has measured it.

/** Weights that one thread of the wasm backend gets through per second; measured on a server core. */
export const WEIGHTS_PER_THREAD = 6e9
/** The same for a GPU of the middle: a part of what its memory gives, since a token's products are small. */
export const GPU_WEIGHTS = 200e9
/** Random reads of one expert, eight at a time, from a good NVMe disk. */
export const READ_SPEED = 2.5e9
