// A panel with one value over the last minutes.
import type { EngineHistory } from '../state/engineHistory.js'
import { type ChartSeries, LineChart } from './lineChart.js'

interface Props {
  readonly history: EngineHistory
  readonly version: number // of the history, which is the same object all the time
  readonly name: string // for who cannot see it
  readonly title: string
  readonly empty: string // where there is nothing to show
  readonly series: ChartSeries
  readonly range?: readonly [number, number]
  format(value: number): string
}

export function ChartPanel({ history, version, name, title, empty, series, range, format }: Props) {
  return (
    <section class="panel" aria-label={name}>
      <h2>{title}</h2>
      <LineChart
        version={version}
        times={history.times}
        shaded={history.isPrompt}
        empty={empty}
        series={[series]}
        range={range}
        format={format}
      />
    </section>
  )
}
