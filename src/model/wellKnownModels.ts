// Short names of models that people know, and where they are on the hub. Data alone: another model is one more line.
import type { PresetName } from '../base/defaults.js'

export interface WellKnownModel {
  /** The shortest first: it is the one that is shown. */
  readonly names: readonly [string, ...string[]]
  /** How names of it begin on the hub, whoever packed it. */
  readonly title: string
  /** What is pulled. */
  readonly hub: string
  /** Its shapes: its own preset, or that of a model of the same shapes. */
  readonly preset: PresetName
}

/** For users without a model yet: a small download, and it fits nearly every machine. */
export const SUGGESTED_MODEL = 'qwen3.5-4b'

export const WELL_KNOWN_MODELS: readonly WellKnownModel[] = [
  {
    names: ['qwen3.5-0.8b', 'qwen3.5:0.8b'],
    title: 'Qwen3.5-0.8B',
    hub: 'mlx-community/Qwen3.5-0.8B-4bit',
    preset: 'qwen3.5-0.8b',
  },
  {
    names: ['qwen3.5-4b', 'qwen3.5:4b'],
    title: 'Qwen3.5-4B',
    hub: 'mlx-community/Qwen3.5-4B-4bit',
    preset: 'qwen3.5-4b',
  },
  {
    names: ['qwen3.5-9b', 'qwen3.5:9b'],
    title: 'Qwen3.5-9B',
    hub: 'mlx-community/Qwen3.5-9B-4bit',
    preset: 'qwen3.5-9b',
  },
  {
    names: ['qwen3.8-27b', 'qwen3.8:27b'],
    title: 'Qwen3.8-27B',
    hub: 'mlx-community/Qwen3.8-27B-4bit',
    preset: 'qwen3.8-27b',
  },
  {
    names: ['qwen3.6-35b', 'qwen3.6-35b-a3b', 'qwen3.6:35b', 'a3b'],
    title: 'Qwen3.6-35B-A3B',
    hub: 'mlx-community/Qwen3.6-35B-A3B-4bit',
    preset: 'a3b',
  },
  {
    names: ['qwen3.5-35b', 'qwen3.5-35b-a3b', 'qwen3.5:35b'],
    title: 'Qwen3.5-35B-A3B',
    hub: 'mlx-community/Qwen3.5-35B-A3B-4bit',
    preset: 'a3b',
  },
  {
    names: ['qwen3.5-122b', 'qwen3.5-122b-a10b', 'qwen3.5:122b'],
    title: 'Qwen3.5-122B-A10B',
    hub: 'mlx-community/Qwen3.5-122B-A10B-4bit',
    preset: 'qwen3.5-122b-a10b',
  },
  {
    names: ['qwen3.5-397b', 'qwen3.5-397b-a17b', 'qwen3.5:397b', 'a17b'],
    title: 'Qwen3.5-397B-A17B',
    hub: 'mlx-community/Qwen3.5-397B-A17B-4bit',
    preset: 'a17b',
  },
  {
    names: ['qwen3-30b', 'qwen3-30b-a3b', 'qwen3:30b'],
    title: 'Qwen3-30B-A3B',
    hub: 'mlx-community/Qwen3-30B-A3B-4bit',
    preset: 'qwen3-30b-a3b',
  },
  {
    names: ['qwen3-coder-30b', 'qwen3-coder', 'qwen3-coder:30b'],
    title: 'Qwen3-Coder-30B-A3B',
    hub: 'mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit',
    preset: 'qwen3-30b-a3b',
  },
  {
    names: ['qwen3-coder-next', 'qwen3-coder-next:80b'],
    title: 'Qwen3-Coder-Next',
    hub: 'mlx-community/Qwen3-Coder-Next-4bit',
    preset: 'qwen3-coder-next',
  },
  {
    names: ['qwen3-next-80b', 'qwen3-next', 'qwen3-next:80b'],
    title: 'Qwen3-Next-80B-A3B',
    hub: 'mlx-community/Qwen3-Next-80B-A3B-Instruct-4bit',
    preset: 'qwen3-coder-next',
  },
  {
    names: ['glm-4.5-air', 'glm4.5-air'],
    title: 'GLM-4.5-Air',
    hub: 'mlx-community/GLM-4.5-Air-4bit',
    preset: 'glm-4.5-air',
  },
  {
    names: ['gpt-oss-20b', 'gpt-oss', 'gpt-oss:20b'],
    title: 'gpt-oss-20b',
    hub: 'openai/gpt-oss-20b',
    preset: 'gpt-oss-20b',
  },
  {
    names: ['gpt-oss-120b', 'gpt-oss:120b'],
    title: 'gpt-oss-120b',
    hub: 'openai/gpt-oss-120b',
    preset: 'gpt-oss-120b',
  },
]

export function findWellKnown(name: string): WellKnownModel | null {
  const wanted = name.trim().toLowerCase()
  return WELL_KNOWN_MODELS.find(({ names }) => names.includes(wanted)) ?? null
}
