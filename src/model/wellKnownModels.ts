// Short names of models that people know, and where they are on the hub. Data alone: another model is one more line.
import type { PresetName } from './presets.js'

export interface WellKnownModel {
  /** The shortest first: it is the one that is shown. */
  readonly names: readonly [string, ...string[]]
  /** How names of it begin on the hub, whoever packed it. */
  readonly title: string
  /** What is pulled. */
  readonly hub: string
  /** Where its shapes are known without any file. */
  readonly preset?: PresetName
}

export const WELL_KNOWN_MODELS: readonly WellKnownModel[] = [
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
  },
  {
    names: ['qwen3.5-122b', 'qwen3.5-122b-a10b', 'qwen3.5:122b'],
    title: 'Qwen3.5-122B-A10B',
    hub: 'mlx-community/Qwen3.5-122B-A10B-4bit',
  },
  {
    names: ['qwen3.5-397b', 'qwen3.5-397b-a17b', 'qwen3.5:397b', 'a17b'],
    title: 'Qwen3.5-397B-A17B',
    hub: 'mlx-community/Qwen3.5-397B-A17B-4bit',
    preset: 'a17b',
  },
]

export function findWellKnown(name: string): WellKnownModel | null {
  const wanted = name.toLowerCase()
  return WELL_KNOWN_MODELS.find(({ names }) => names.includes(wanted)) ?? null
}
