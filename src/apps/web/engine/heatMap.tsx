// Layers × experts: colour tells how much an expert was used lately, size whether it is in memory. Both can be read without
// telling colours apart, by pointer or by key: the line below says in words what a cell shows.
import { useState } from 'preact/hooks'
import type { EngineHistory } from '../state/engineHistory.js'
import * as format from '../ui/format.js'
import { tone } from './themeColours.js'
import { useDrawing } from './useDrawing.js'

interface Cell {
  readonly layer: number
  readonly expert: number
}

const LABELS = 30 // pixels left of the cells
const STEPS = 5 // of the colour ramp
const COLD = 0.08 // of the hottest: below it, an expert looks unused

export function HeatMap({ history, version }: { history: EngineHistory; version: number }) {
  const [cell, setCell] = useState<Cell | null>(null)
  const { layers, experts } = history.shape
  const rowHeight = Math.max(5, Math.min(22, Math.floor(300 / layers)))
  const height = rowHeight * layers

  // The history is the same object all the time; the version tells that it grew.
  const reasons = [version, history, cell, rowHeight]
  const canvas = useDrawing(element => draw(element, history, rowHeight, cell), reasons)

  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect()
    const expert = Math.floor(((event.clientX - box.left - LABELS) / (box.width - LABELS)) * experts)
    const layer = Math.floor((event.clientY - box.top) / rowHeight)
    const isInside = expert >= 0 && expert < experts && layer >= 0 && layer < layers
    setCell(isInside ? { layer, expert } : null)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key]
    if (event.key === 'Escape') setCell(null)
    if (!move) return
    event.preventDefault()
    const from = cell ?? { layer: 0, expert: -1 }
    setCell({ layer: within(from.layer + move[0], layers), expert: within(from.expert + move[1], experts) })
  }
  return (
    <>
      <div class="panel-head">
        <h2>Routing, layer by expert</h2>
        <Legend />
      </div>
      <div
        class="heat-map"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: moved through by key
        tabIndex={0}
        role="application"
        aria-label={`Heat map of ${layers} layers by ${experts} experts. Arrow keys move from expert to expert.`}
        aria-describedby="heat-details"
        onKeyDown={onKeyDown}
        onPointerMove={point}
        onPointerLeave={() => setCell(null)}
      >
        <canvas ref={canvas} height={height} style={{ height: `${height}px` }} />
      </div>
      <p id="heat-details" class="heat-details" aria-live="polite">
        {cell ? describe(history, cell) : summary(history)}
      </p>
    </>
  )
}

function Legend() {
  return (
    <ul class="legend">
      <li>
        <i class="cell-out" />
        on disk
      </li>
      <li>
        <i class="cell-in" />
        in memory
      </li>
      <li class="ramp">
        used less
        {Array.from({ length: STEPS }, (_, i) => (
          <i key={`${i}`} class={`heat-${i}`} />
        ))}
        more
      </li>
    </ul>
  )
}

function within(value: number, count: number): number {
  return Math.max(0, Math.min(count - 1, value))
}

function describe({ shape, routed, resident }: EngineHistory, { layer, expert }: Cell): string {
  const at = layer * shape.experts + expert
  const ofLayer = routed.subarray(layer * shape.experts, (layer + 1) * shape.experts).reduce((a, b) => a + b, 0)
  const share = ofLayer > 0 ? ` (${format.percent(routed[at] / ofLayer)} of the layer)` : ''
  const kind = shape.layerKinds[layer] === 'full_attention' ? 'full attention' : 'linear attention'
  const place = resident[at] ? 'in memory' : 'on disk'
  return `Layer ${shape.layerNumbers[layer]}, ${kind} · expert ${expert}: ${format.count(routed[at])} tokens${share}, ${place}`
}

function summary({ tokens, routed, resident }: EngineHistory): string {
  const used = routed.reduce((sum, count) => sum + (count > 0 ? 1 : 0), 0)
  const inMemory = resident.reduce((sum, bit) => sum + bit, 0)
  const all = format.count(resident.length)
  if (tokens === 0)
    return `${format.count(inMemory)} of ${all} experts are in memory. Ask something to see them at work.`
  return `${format.count(tokens)} tokens watched: ${format.count(used)} of ${all} experts used, ${format.count(inMemory)} in memory.`
}

function draw(canvas: HTMLCanvasElement, history: EngineHistory, rowHeight: number, cell: Cell | null): void {
  const { layers, experts, layerNumbers, layerKinds } = history.shape
  const width = canvas.clientWidth
  const ratio = devicePixelRatio || 1
  canvas.width = Math.round(width * ratio)
  canvas.height = Math.round(rowHeight * layers * ratio)
  const context = canvas.getContext('2d')
  if (!context || width === 0) return
  context.scale(ratio, ratio)
  const step = (width - LABELS) / experts
  const gap = step > 6 ? 1.5 : step > 3 ? 0.75 : 0
  const outside = tone('cell-out')
  const inside = tone('cell-in')
  const ramp = Array.from({ length: STEPS }, (_, i) => tone(`heat-${i}`))
  const hottest = history.heat.reduce((most, heat) => Math.max(most, heat), 0)
  context.font = `${Math.min(11, Math.max(8, rowHeight - 2))}px system-ui, sans-serif`
  context.textBaseline = 'middle'
  const labelEvery = Math.max(1, Math.ceil(14 / rowHeight))
  for (let layer = 0; layer < layers; layer++) {
    const top = layer * rowHeight
    if (layer % labelEvery === 0) {
      context.fillStyle = layerKinds[layer] === 'full_attention' ? tone('text') : tone('muted')
      context.fillText(String(layerNumbers[layer]), 2, top + rowHeight / 2)
    }
    for (let expert = 0; expert < experts; expert++) {
      const at = layer * experts + expert
      const level = hottest > 0 ? history.heat[at] / hottest : 0
      const isIn = history.resident[at] === 1
      context.fillStyle = level > COLD ? ramp[Math.min(STEPS - 1, Math.floor(level * STEPS))] : isIn ? inside : outside
      const inset = isIn ? 0 : Math.min(step, rowHeight) * 0.28
      const left = LABELS + expert * step
      context.fillRect(
        left + gap / 2 + inset,
        top + gap / 2 + inset,
        Math.max(0.75, step - gap - 2 * inset),
        Math.max(0.75, rowHeight - Math.max(gap, 1) - 2 * inset),
      )
    }
  }
  if (cell) {
    context.strokeStyle = tone('text')
    context.lineWidth = 2
    context.strokeRect(LABELS + cell.expert * step, cell.layer * rowHeight, Math.max(3, step), rowHeight)
  }
}
