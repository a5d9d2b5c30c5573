// A window into the engine: which experts tokens go to and which are in memory, how fast it runs, and where time goes.
import { useApp } from '../state/app.js'
import { EngineHistory } from '../state/engineHistory.js'
import * as format from '../ui/format.js'
import { HeatMap } from './heatMap.js'
import { LatencyChart } from './latencyChart.js'
import { type ChartSeries, LineChart } from './lineChart.js'
import { PhaseChart } from './phaseChart.js'
import { TiersPanel } from './tiersPanel.js'

export function EngineView() {
  const app = useApp()
  const history = app.feed.history.value
  const engine = app.engines.active.value
  const version = app.feed.version.value
  if (engine !== null && !engine.shape.isLoaded) return <NotLoaded model={engine.shape.model} />
  if (engine === null || history === null) {
    return (
      <section class="engine" aria-label="Engine">
        <div class="engine-empty">
          <h1>No engine yet</h1>
          <p>Choose a model to look into the engine that runs it.</p>
          <button type="button" class="button primary" onClick={() => (app.dialog.value = 'model')}>
            Choose a model
          </button>
        </div>
      </section>
    )
  }
  const { shape } = history
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolled by key
    <section class="engine" aria-label="Engine" tabIndex={0}>
      <div class="engine-inner">
        <header class="engine-head">
          <div>
            <h1>{shape.model}</h1>
            <p>
              {shape.description} · {shape.layers} layers × {shape.experts} experts, {shape.expertsPerToken} per token
            </p>
          </div>
          <LiveBadge history={history} isLive={app.feed.isLive.value} />
        </header>
        <Tiles history={history} />
        <section class="panel" aria-label="Routing">
          <HeatMap history={history} version={version} />
        </section>
        <TiersPanel history={history} />
        <div class="panels">
          <ChartPanel
            history={history}
            version={version}
            format={tokens}
            name="Speed"
            title="Tokens per second"
            empty="No answer yet"
            series={{ label: 'answer', values: history.speed, tone: 'speed' }}
          />
          <ChartPanel
            history={history}
            version={version}
            format={tokens}
            name="Prompts"
            title="Prompt tokens per second"
            empty="No prompt yet"
            series={{ label: 'prompt', values: history.promptSpeed, tone: 'prompt' }}
          />
          <section class="panel" aria-label="Time per token">
            <h2>Time per token, by phase</h2>
            <PhaseChart history={history} version={version} />
          </section>
          <ChartPanel
            history={history}
            version={version}
            format={format.percent}
            name="Cache"
            title="Experts found in memory"
            empty="No expert was looked up yet"
            series={{ label: 'hit rate', values: history.hitRate, tone: 'hits' }}
            range={[0, 1]}
          />
          <ChartPanel
            history={history}
            version={version}
            name="Reading"
            title="Reading from disk"
            empty="Nothing was read lately"
            series={{ label: 'bytes per second', values: history.readRate, tone: 'reads' }}
            format={value => `${format.bytes(value)}/s`}
          />
          <section class="panel" aria-label="Read times">
            <h2>Time per read</h2>
            <LatencyChart
              latency={history.frame?.stats.readLatencyMs ?? []}
              wastedBytes={history.frame?.stats.prefetchWastedBytes ?? 0}
            />
          </section>
          <Counters history={history} />
          <EventLog history={history} />
        </div>
      </div>
    </section>
  )
}

/** Of a model that is not in memory there is nothing to see. */
function NotLoaded({ model }: { model: string }) {
  const { engines } = useApp()
  return (
    <section class="engine" aria-label="Engine">
      <div class="engine-empty">
        <h1>{model} is not in memory</h1>
        <p>It loads with your first message, or now.</p>
        <button type="button" class="button primary" onClick={() => void engines.useServerModel(model)}>
          Load it
        </button>
      </div>
    </section>
  )
}

/** Whole numbers where they tell enough: an axis of 1, 1, 1, 0 and 0 tells nothing. */
function tokens(value: number): string {
  return value > 0 && value < 10 ? value.toFixed(1) : format.count(value)
}

function LiveBadge({ history, isLive }: { history: EngineHistory; isLive: boolean }) {
  const phase = history.frame?.phase ?? 'idle'
  const words = { idle: 'Idle', prompt: 'Reading a prompt', decode: 'Answering', mixed: 'Reading and answering' }
  return (
    <span class={`live ${isLive ? phase : 'lost'}`} role="status">
      <i class="live-dot" aria-hidden="true" />
      {isLive ? words[phase] : 'Connecting …'}
    </span>
  )
}

function Tiles({ history }: { history: EngineHistory }) {
  const { frame } = history
  if (frame === null) return null
  const { stats } = frame
  const hitRate = EngineHistory.hitRate(frame, null)
  const { lastSpeed, lastPromptSpeed } = history
  const share = stats.expertSlots > 0 ? stats.expertSlotsUsed / stats.expertSlots : 0
  const busy = stats.computeSeconds + stats.stallSeconds
  return (
    <div class="tiles">
      <Tile
        name="speed"
        label={frame.phase === 'idle' ? 'Last speed' : 'Speed'}
        value={lastSpeed === null ? '–' : tokens(lastSpeed)}
        unit="tok/s"
        note={lastPromptSpeed === null ? undefined : `prompts ${tokens(lastPromptSpeed)} tok/s`}
      />
      <Tile
        name="hits"
        label="Found in memory"
        value={hitRate === null ? '–' : format.percent(hitRate)}
        note={`${format.compact(stats.expertHits)} of ${format.compact(stats.expertHits + stats.expertMisses)} lookups`}
      />
      <Tile
        name="memory"
        label="Experts in memory"
        value={format.count(stats.expertSlotsUsed)}
        unit={`of ${format.count(stats.expertSlots)} slots`}
        share={share}
      />
      <Tile
        name="reads"
        label="Read from disk"
        value={format.bytes(stats.bytesRead)}
        note={`${format.compact(stats.expertMisses)} on demand, ${format.compact(stats.prefetchReads)} ahead`}
      />
      <Tile
        name="stall"
        label="Waited for reads"
        value={busy > 0 ? format.percent(stats.stallSeconds / busy) : '–'}
        note={`${format.seconds(stats.stallSeconds)} of ${format.seconds(busy)}`}
      />
    </div>
  )
}

interface TileProps {
  readonly name: string
  readonly label: string
  readonly value: string
  readonly unit?: string
  readonly note?: string
  readonly share?: number
}

function Tile({ name, label, value, unit, note, share }: TileProps) {
  return (
    <div class={`tile tile-${name}`}>
      <span class="tile-label">{label}</span>
      <span class="tile-value">
        {value} {unit && <small>{unit}</small>}
      </span>
      {note && <span class="tile-note">{note}</span>}
      {share !== undefined && <progress class="tile-bar" max={1} value={share} aria-label={label} />}
    </div>
  )
}

/** The engine's own counters, digit by digit: the same as in /metrics. */
function Counters({ history }: { history: EngineHistory }) {
  const stats = history.frame?.stats
  if (!stats) return null
  const rows: [string, string, number][] = [
    ['tokens', 'Tokens evaluated', stats.tokens],
    ['promptTokens', 'of prompts', stats.promptTokens],
    ['decodeTokens', 'of answers', stats.decodeTokens],
    ['expertHits', 'Experts found in memory', stats.expertHits],
    ['expertMisses', 'Experts read on demand', stats.expertMisses],
    ['prefetchReads', 'Experts read ahead', stats.prefetchReads],
    ['prefetchHits', 'of them wanted later', stats.prefetchHits],
    ['prefetchWastedBytes', 'Bytes read ahead for nothing', stats.prefetchWastedBytes],
    ['bytesRead', 'Bytes read', stats.bytesRead],
    ['expertSlotsUsed', 'Slots in use', stats.expertSlotsUsed],
  ]
  const { drafts } = stats
  if (drafts)
    rows.push(['guesses', 'Tokens guessed ahead', drafts.guesses], ['accepted', 'of them right', drafts.accepted])
  return (
    <section class="panel" aria-label="Counters">
      <h2>Counters</h2>
      <dl class="counters">
        {rows.map(([key, label, value]) => (
          <div key={key}>
            <dt>{label}</dt>
            <dd data-counter={key}>{format.count(value)}</dd>
          </div>
        ))}
      </dl>
      {drafts && (
        <p class="panel-note">
          {drafts.now} guessed at a time now; {drafts.reason}
        </p>
      )}
    </section>
  )
}

function EventLog({ history }: { history: EngineHistory }) {
  return (
    <section class="panel" aria-label="Events">
      <h2>Events</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrolled by key */}
      <ol class="log" tabIndex={0} aria-label="Events, newest first">
        {history.log.map(({ id, time, text, kind }) => (
          <li key={id} class={kind}>
            <time>{format.clock(time)}</time>
            <span>{text}</span>
          </li>
        ))}
      </ol>
    </section>
  )
}

/** A panel with one value over the last minutes. */
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

function ChartPanel({ history, version, name, title, empty, series, range, format }: Props) {
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
