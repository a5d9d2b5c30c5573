// Values over the last two minutes, drawn by uPlot.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { onThemeChange, tone } from './tones.js'

export interface ChartSeries {
  readonly label: string
  readonly values: readonly (number | null)[]
  readonly tone: string
}

interface Props {
  readonly version: number // counts changes of the values, which are the same arrays all the time
  readonly times: readonly number[] // seconds since 1970
  readonly series: readonly ChartSeries[]
  readonly range?: readonly [number, number]
  format(value: number): string
}

const HEIGHT = 158
const AXIS = 56
const LEAST_SECONDS = 15 // that the chart shows

export function LineChart({ version, times, series, range, format }: Props) {
  const holder = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const data = (): uPlot.AlignedData => [times.slice(), ...series.map(({ values }) => values.slice())]

  // Made once; data comes by the effect below.
  useEffect(() => {
    const element = holder.current as HTMLDivElement
    const make = () => {
      plot.current?.destroy()
      plot.current = new uPlot(options(element.clientWidth, series, range, format), data(), element)
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

function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString([], { hour12: false })
}
