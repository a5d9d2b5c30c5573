// Where a token's time went: one bar per frame, its phases stacked, with a mark below those that read a prompt. A canvas of its own: bars that stack are not what the
// line charts do.
import type { EngineHistory } from '../state/engineHistory.js'
import { tone } from './themeColours.js'
import { useDrawing } from './useDrawing.js'

const HEIGHT = 132
const BARS = 60
const AXIS = 56
const NAMES = new Map([
  ['mixer', 'attention'],
  ['router', 'router'],
  ['experts', 'experts'],
  ['head', 'head'],
  ['stall', 'waiting'],
  ['gpu', 'GPU'],
])

export function PhaseChart({ history, version }: { history: EngineHistory; version: number }) {
  const phases = [...history.phases.keys()]
  if (lastBar(history) === null) return <p class="chart chart-empty">No token yet</p>
  return <Bars history={history} version={version} phases={phases} />
}

function Bars({ history, version, phases }: { history: EngineHistory; version: number; phases: readonly string[] }) {
  // The history is the same object all the time; the version tells that it grew.
  const canvas = useDrawing(element => draw(element, history), [version, history])
  const last = lastBar(history)
  const words = phases.map(name => `${nameOf(name)} ${(last?.get(name) ?? 0).toFixed(2)} ms`)
  return (
    <>
      <canvas class="phase-chart" ref={canvas} role="img" aria-label={`Last token: ${words.join(', ')}`} />
      <ul class="legend">
        {phases.map((name, i) => (
          <li key={name}>
            <i class={`phase-${i % 6}`} />
            {nameOf(name)}
          </li>
        ))}
        <li>
          <i class="phase-prompt" />
          while reading a prompt
        </li>
      </ul>
    </>
  )
}

function nameOf(phase: string): string {
  return NAMES.get(phase) ?? phase
}

function lastBar({ times, phases }: EngineHistory): Map<string, number> | null {
  for (let i = times.length - 1; i >= 0; i--) {
    const bar = new Map([...phases].map(([name, values]) => [name, values[i] ?? 0]))
    if ([...bar.values()].some(value => value > 0)) return bar
  }
  return null
}

function draw(canvas: HTMLCanvasElement, { times, phases, isPrompt }: EngineHistory): void {
  const width = canvas.clientWidth
  const ratio = devicePixelRatio || 1
  canvas.width = Math.round(width * ratio)
  canvas.height = Math.round(HEIGHT * ratio)
  const context = canvas.getContext('2d')
  if (!context || width === 0) return
  context.scale(ratio, ratio)
  const names = [...phases.keys()]
  const bars: number[][] = []
  const prompts: boolean[] = []
  for (let i = 0; i < times.length; i++) {
    const bar = names.map(name => phases.get(name)?.[i] ?? 0)
    if (!bar.some(value => value > 0)) continue
    bars.push(bar)
    prompts.push(isPrompt[i])
  }
  const shown = bars.slice(-BARS)
  const marked = prompts.slice(-BARS)
  const totals = shown.map(bar => bar.reduce((sum, value) => sum + value, 0)).sort((a, b) => a - b)
  const usual = totals[Math.floor(totals.length / 2)] ?? 1
  const top = niceTop(Math.min(totals.at(-1) ?? 1, usual * 4)) // one slow token must not flatten all others
  const plotHeight = HEIGHT - 14
  const y = (value: number) => 8 + (plotHeight - 8) * (1 - value / top)
  context.font = '11px system-ui, sans-serif'
  context.textAlign = 'right'
  context.textBaseline = 'middle'
  for (const share of [0, 0.5, 1]) {
    context.strokeStyle = tone('line')
    context.beginPath()
    context.moveTo(AXIS, Math.round(y(top * share)) + 0.5)
    context.lineTo(width - 8, Math.round(y(top * share)) + 0.5)
    context.stroke()
    context.fillStyle = tone('muted')
    context.fillText(`${Number((top * share).toPrecision(2))} ms`, AXIS - 8, y(top * share))
  }
  const step = (width - 8 - AXIS) / BARS
  const first = BARS - shown.length
  const tones = names.map((_, i) => tone(`phase-${i % 6}`))
  shown.forEach((bar, i) => {
    let below = 0
    bar.forEach((value, phase) => {
      context.fillStyle = tones[phase]
      const from = y(below)
      below = Math.min(top, below + value)
      context.fillRect(AXIS + (first + i) * step + 1, y(below), Math.max(1, step - 1.5), from - y(below))
    })
    if (!marked[i]) return
    context.fillStyle = tone('prompt')
    context.fillRect(AXIS + (first + i) * step, plotHeight + 4, step, 4)
  })
}

/** The next of 1, 2, 5, 10, … above a value. */
function niceTop(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 5, 10].map(step => step * power).find(top => top >= value) ?? value
}
