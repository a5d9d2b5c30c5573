// How much of the model's context the conversation takes: what the last answer was asked with and said, or what the one
// that is being written was asked with.
import { useApp } from '../state/app.js'
import { branch } from '../state/conversation.js'
import * as format from '../ui/format.js'

const RADIUS = 7
const ROUND = 2 * Math.PI * RADIUS
const NEARLY_FULL = 0.85

export function ContextMeter() {
  const app = useApp()
  const conversation = app.conversations.current.value
  const limit = app.engines.active.value?.shape.contextLength ?? 0
  const stage = (conversation && app.answers.live.value.get(conversation.id)?.stage.value) ?? null
  const usage = conversation ? branch(conversation).findLast(message => message.usage)?.usage : undefined
  const asked = stage?.kind === 'prompt' ? stage.total + stage.cached : 0
  const used = asked || (usage ? usage.promptTokens + usage.answerTokens : 0)
  if (limit === 0 || used === 0) return null
  const share = Math.min(1, used / limit)
  const words = `${format.count(used)} of ${format.count(limit)} tokens of the context`
  return (
    // biome-ignore lint/a11y/useSemanticElements: a ring is not drawn by a meter element
    <span
      class={`context-meter${share > NEARLY_FULL ? ' full' : ''}`}
      role="meter"
      aria-valuemin={0}
      aria-valuemax={limit}
      aria-valuenow={used}
      aria-label="Context"
      aria-valuetext={words}
      title={words}
    >
      <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true" focusable="false">
        <circle cx="9" cy="9" r={RADIUS} />
        <circle cx="9" cy="9" r={RADIUS} class="part" stroke-dasharray={`${share * ROUND} ${ROUND}`} />
      </svg>
      {Math.max(1, Math.round(share * 100))}%
    </span>
  )
}
