// What is shown until the first token: that the model is loaded, or how far it has read the prompt. What takes a moment
// only is three dots.
import { useEffect, useState } from 'preact/hooks'
import { secondsLeft } from '../state/answerStage.js'
import type { LiveAnswer } from '../state/answers.js'
import * as format from '../ui/format.js'

const PATIENCE_MS = 400
const TICK_MS = 250

export function Waiting({ live }: { live: LiveAnswer }) {
  const [now, setNow] = useState(() => performance.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), TICK_MS)
    return () => clearInterval(timer)
  }, [])
  const stage = live.stage.value
  if (stage === null || stage.total === 0 || now - live.startedAt < PATIENCE_MS) return <Dots />
  const isPrompt = stage.kind === 'prompt'
  const share = stage.done / stage.total
  const left = secondsLeft(stage, now)
  const name = isPrompt ? 'Reading the prompt' : 'Loading the model'
  const parts = [
    isPrompt && `${format.count(stage.done)} of ${format.count(stage.total)} tokens`,
    isPrompt && stage.cached > 0 && `${format.count(stage.cached)} more cached`,
    left !== null && `about ${format.timeLeft(left)} left`,
  ]
  return (
    <div class="reading">
      <div class="reading-head">
        <span class="shimmer">{name}</span>
        <span class="reading-share">{Math.floor(share * 100)}%</span>
      </div>
      <progress max={1} value={share} aria-label={name} />
      <small>{parts.filter(part => part !== false).join(' · ')}</small>
    </div>
  )
}

function Dots() {
  return (
    <p class="waiting">
      <span class="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      <span class="visually-hidden">The model is reading the prompt.</span>
    </p>
  )
}
