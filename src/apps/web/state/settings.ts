// What the user has set, kept in localStorage. A number that is null is left to the model. What is read back is checked:
// another version of the page, or a hand, may have written it.
import type { PageStorage } from './pageStorage.js'

export interface Settings {
  readonly temperature: number | null
  readonly topP: number | null
  readonly topK: number | null
  readonly minP: number | null
  readonly seed: number | null
  readonly maxTokens: number | null
  readonly thinking: boolean
  readonly system: string // of new conversations
  readonly theme: 'system' | 'light' | 'dark'
  readonly sendKey: 'enter' | 'ctrl-enter'
  readonly tabBackend: 'auto' | 'webgpu' | 'wasm' // of models that are loaded into the tab from now on
}

export interface NumberSetting {
  readonly key: 'temperature' | 'topP' | 'topK' | 'minP' | 'seed' | 'maxTokens'
  readonly label: string
  readonly hint: string
  readonly min: number
  readonly max: number
  readonly step: number
}

export const NUMBER_SETTINGS: readonly NumberSetting[] = [
  { key: 'temperature', label: 'Temperature', hint: '0 always takes the likeliest token', min: 0, max: 2, step: 0.05 },
  { key: 'topP', label: 'Top-p', hint: 'likeliest tokens up to this share', min: 0.01, max: 1, step: 0.01 },
  { key: 'topK', label: 'Top-k', hint: 'so many likeliest tokens; 0 for all', min: 0, max: 1000, step: 1 },
  { key: 'minP', label: 'Min-p', hint: 'share of the likeliest token’s chance', min: 0, max: 1, step: 0.01 },
  { key: 'maxTokens', label: 'Max tokens', hint: 'longest answer', min: 1, max: 1_000_000, step: 1 },
  { key: 'seed', label: 'Seed', hint: 'the same seed gives the same answer', min: 0, max: 2 ** 31 - 1, step: 1 },
]

export const DEFAULT_SETTINGS: Settings = {
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  seed: null,
  maxTokens: null,
  thinking: false,
  system: '',
  theme: 'system',
  sendKey: 'enter',
  tabBackend: 'auto',
}

const KEY = 'moeflux.settings'

export function loadSettings(storage: PageStorage): Settings {
  try {
    return checkSettings(JSON.parse(storage.getItem(KEY) ?? '{}'))
  } catch {
    return DEFAULT_SETTINGS
  }
}

export function saveSettings(storage: PageStorage, settings: Settings): void {
  storage.setItem(KEY, JSON.stringify(settings))
}

function checkSettings(value: unknown): Settings {
  const fields = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>
  const settings: Record<string, unknown> = { ...DEFAULT_SETTINGS }
  for (const { key, min, max } of NUMBER_SETTINGS) {
    const number = fields[key]
    if (typeof number === 'number' && number >= min && number <= max) settings[key] = number
  }
  if (typeof fields.thinking === 'boolean') settings.thinking = fields.thinking
  if (typeof fields.system === 'string') settings.system = fields.system
  if (fields.theme === 'light' || fields.theme === 'dark') settings.theme = fields.theme
  if (fields.sendKey === 'ctrl-enter') settings.sendKey = fields.sendKey
  if (fields.tabBackend === 'webgpu' || fields.tabBackend === 'wasm') settings.tabBackend = fields.tabBackend
  return settings as unknown as Settings
}
