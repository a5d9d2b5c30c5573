// A conversation as it is kept, and as it is saved to a file for later. Loading checks everything: the file may come from
// anywhere.
import { UsageError } from '../../../base/errors.js'

export interface Turn {
  readonly role: 'user' | 'assistant'
  readonly content: string
  readonly reasoning_content?: string
}

export interface Transcript {
  readonly model: string
  readonly system: string | null
  readonly turns: readonly Turn[]
}

const KIND = 'moeflux chat'
const VERSION = 1

export function formatTranscript(transcript: Transcript): string {
  return `${JSON.stringify({ kind: KIND, version: VERSION, ...transcript }, null, 2)}\n`
}

export function parseTranscript(text: string, file: string): Transcript {
  const refuse = (detail: string) => new UsageError(`${file}: ${detail}`)
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw refuse('is not a saved chat: not JSON')
  }
  const fields = new Map(json !== null && typeof json === 'object' ? Object.entries(json) : [])
  if (fields.get('kind') !== KIND) throw refuse('is not a saved chat')
  if (fields.get('version') !== VERSION)
    throw refuse(`has version ${versionText(fields.get('version'))}, want ${VERSION}`)
  const turns = fields.get('turns')
  const system = fields.get('system') ?? null
  if (!Array.isArray(turns) || !turns.every(isTurn)) throw refuse('has turns that are not messages')
  if (system !== null && typeof system !== 'string') throw refuse('has a system prompt that is not text')
  const model = fields.get('model')
  return { model: typeof model === 'string' ? model : '', system, turns }
}

function versionText(value: unknown): string {
  return typeof value === 'number' ? String(value) : 'unknown'
}

function isTurn(value: unknown): value is Turn {
  if (value === null || typeof value !== 'object') return false
  const { role, content, reasoning_content: thoughts } = value as Record<string, unknown>
  if (thoughts !== undefined && typeof thoughts !== 'string') return false
  return (role === 'user' || role === 'assistant') && typeof content === 'string'
}
