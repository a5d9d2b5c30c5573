// Values over the last minutes, drawn by uPlot; the times when prompts were read are shaded. Where there is nothing to show,
// words stand in place of empty axes.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { onThemeChange, tone } from './themeColours.js'

export interface ChartSeries {
  readonly label: string
  readonly values: readonly (number | null)[]
  readonly tone: string
}

interface Props {
  readonly version: number // counts changes of the values, which are the same arrays all the time
  readonly times: readonly number[] // seconds since 1970
  readonly series: readonly ChartSeries[]
  readonly shaded: readonly boolean[] // by time
  readonly empty: string // where no value is above zero
  readonly range?: readonly [number, number]
  format(value: number): string
}

const HEIGHT = 158
const AXIS = 56
const LEAST_SECONDS = 15 // that the chart shows

export function LineChart(props: Props) {
  const hasValues = props.series.some(({ values }) => values.some(value => value !== null && value > 0))
  return hasValues ? <Plot {...props} /> : <p class="chart chart-empty">{props.empty}</p>
}

function Plot({ version, times, series, shaded, range, format }: Props) {
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const data = (): uPlot.AlignedData => [times.slice(), ...series.map(({ values }) => values.slice())]

  // Made once; data comes by the effect below.
  useEffect(() => {
    const element = holder.current as HTMLDivElement
    const make = () => {
      plot.current?.destroy()
      plot.current = new uPlot(options(element.clientWidth, series, shaded, range, format), data(), element)
    }
    make()
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }))
    watcher.observe(element)
    const forget = onThemeChange(make)
    return () => {
      forget()
      watcher.disconnect()
      plot.current?.destroy()
    }
  }, [])
  // The arrays are the same all the time; the version tells that they grew.
  useEffect(() => {
    plot.current?.setData(data())
  }, [version])

  const last = series.map(({ label, values }) => {
    const value = values.findLast(each => each !== null)
    return `${label} ${value === undefined || value === null ? 'unknown' : format(value)}`
  })
  return <div class="chart" ref={holder} role="img" aria-label={`Last: ${last.join(', ')}`} />
}

function options(
  width: number,
  series: readonly ChartSeries[],
  shaded: readonly boolean[],
  range: Props['range'],
  format: Props['format'],
): uPlot.Options {
  const axis = {
    stroke: tone('muted'),
    grid: { stroke: tone('line'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
  }
  return {
    width,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    hooks: { drawClear: [plot => shade(plot, shaded)] },
    scales: {
      x: { range: (_, min, max) => [Math.min(min, max - LEAST_SECONDS), max] },
      y: { range: range ? [...range] : (_, __, max) => [0, max > 0 ? max * 1.15 : 1] },
    },
    axes: [
      { ...axis, space: 70, size: 24, values: (_, splits) => splits.map(clock) },
      { ...axis, size: AXIS, space: 28, values: (_, splits) => splits.map(format) },
    ],
    series: [
      {},
      ...series.map(({ label, tone: name }) => ({
        label,
        stroke: tone(name),
        fill: `${tone(name)}22`,
        width: 1.75,
        spanGaps: true,
        points: { show: false },
      })),
    ],
  }
}

/** Fills the background where prompts were read. */
function shade(plot: uPlot, shaded: readonly boolean[]): void {
  const { ctx, bbox, data } = plot
  const times = data[0]
  ctx.save()
  ctx.fillStyle = tone('prompt-band')
  for (let i = 0; i < times.length; i++) {
    if (!shaded[i]) continue
    const from = i
    while (i + 1 < times.length && shaded[i + 1]) i++
    // A frame covers the time before it.
    const left = Math.max(bbox.left, plot.valToPos(times[Math.max(0, from - 1)], 'x', true))
    const right = Math.max(left + 1, plot.valToPos(times[i], 'x', true))
    ctx.fillRect(left, bbox.top, right - left, bbox.height)
  }
  ctx.restore()
}

function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString([], { hour12: false })
}
