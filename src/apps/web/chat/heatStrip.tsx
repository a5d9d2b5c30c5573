// A small picture of the experts that an answer used, which leads to the large one.
import { tone } from '../engine/themeColours.js'
import { useDrawing } from '../engine/useDrawing.js'
import { useApp } from '../state/app.js'
import type { HeatStrip } from '../state/heatStrip.js'
import * as format from '../ui/format.js'

const RAMP = 5
const LEVELS = 9

export function AnswerHeat({ strip }: { strip: HeatStrip }) {
  const app = useApp()
  const canvas = useDrawing(element => draw(element, strip), [strip])
  const words = `${format.count(strip.used)} of ${format.count(strip.experts)} experts used. Look into the engine`
  return (
    <button
      type="button"
      class="answer-heat"
      aria-label={words}
      title={words}
      onClick={() => app.show(app.isNarrow.value ? 'engine' : 'both')}
    >
      <canvas ref={canvas} width={strip.columns} height={strip.rows} />
    </button>
  )
}

/** A pixel per cell; the style sheet makes them larger. */
function draw(canvas: HTMLCanvasElement, { rows, columns, cells }: HeatStrip): void {
  const context = canvas.getContext('2d')
  if (!context) return
  const ramp = Array.from({ length: RAMP }, (_, i) => tone(`heat-${i}`))
  const unused = tone('cell-out')
  for (let cell = 0; cell < rows * columns; cell++) {
    const level = Number(cells[cell])
    context.fillStyle = level === 0 ? unused : ramp[Math.min(RAMP - 1, Math.floor(((level - 1) / LEVELS) * RAMP))]
    context.fillRect(cell % columns, Math.floor(cell / columns), 1, 1)
  }
}
