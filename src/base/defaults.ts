// Numbers that planners assume until something is measured, and names of presets; help texts show
// both. Imports nothing, so that `moeflux --help` loads no engine.

/** Known shapes of models: see model/presets.ts. */
export const presetNames = [
  'a3b',
  'a17b',
  'qwen3.5-122b-a10b',
  'qwen3.5-0.8b',
  'qwen3.5-4b',
  'qwen3.5-9b',
  'qwen3.8-27b',
  'qwen3-30b-a3b',
  'qwen3-coder-next',
  'glm-4.5-air',
  'gpt-oss-20b',
  'gpt-oss-120b',
] as const

export type PresetName = (typeof presetNames)[number]

/** Tokens of a sequence that memory is planned for, if its length is not given. */
export const PLANNED_TOKENS = 4096

/** Weights per second of one thread of the wasm backend; measured on a server core. */
export const WEIGHTS_PER_THREAD = 6e9
/** The same of a mid-range GPU: small matvecs use only a part of its bandwidth. */
export const GPU_WEIGHTS = 200e9
/** Bytes per second of random reads of experts, eight at a time, from a good NVMe disk. */
export const READ_SPEED = 2.5e9
