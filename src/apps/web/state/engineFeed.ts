// Watches the chosen engine while somebody looks at it or waits for an answer, and a moment longer; else not: nobody watching
// costs an engine nothing. So the engine's view has the course of an answer when it is opened after it.
import { effect, type ReadonlySignal, signal } from '@preact/signals'
import type { EngineFrame } from '#moeflux/apps/browser/page.js'
import type { ChatEngine } from '../engines/chatEngine.js'
import { EngineHistory } from './engineHistory.js'
import { HeatRecorder, type HeatStrip } from './heatStrip.js'

const AFTER_MS = 2000 // in which the last frames of an answer come

/** Sees what is used while an answer is written. */
export interface HeatWatch {
  /** The answer has ended: what it used, when the last frame has come. */
  end(): Promise<HeatStrip | null>
}

export class EngineFeed {
  readonly history = signal<EngineHistory | null>(null)
  /** Counts frames: whoever draws reads it to be drawn again. */
  readonly version = signal(0)
  readonly isLive = signal(false)
  private watched: ChatEngine | null = null
  private stop = () => {}
  private readonly listeners = new Set<(frame: EngineFrame) => void>()

  constructor(engine: ReadonlySignal<ChatEngine | null>, isWanted: ReadonlySignal<boolean>) {
    let later: ReturnType<typeof setTimeout> | undefined
    effect(() => {
      const { value: wanted } = engine
      clearTimeout(later)
      if (isWanted.value && wanted?.shape.isLoaded) this.change(wanted)
      else if (wanted !== this.watched) this.change(null)
      else later = setTimeout(() => this.change(null), AFTER_MS)
    })
  }

  /** Records what an answer of the engine uses, from now on. */
  record({ shape }: ChatEngine): HeatWatch {
    const recorder = new HeatRecorder(shape)
    const add = (frame: EngineFrame) => recorder.add(frame)
    // Frames of another engine, or of the same one loaded anew, have other experts.
    const listener = (frame: EngineFrame) => frame.routed.length === shape.layers * shape.experts && add(frame)
    this.listeners.add(listener)
    return {
      end: async () => {
        await this.idle()
        this.listeners.delete(listener)
        return recorder.strip()
      },
    }
  }

  /** When the engine rests, or has had the time to. */
  private async idle(): Promise<void> {
    await new Promise<void>(resolve => {
      const timer = setTimeout(done, AFTER_MS / 2)
      const { listeners } = this
      function done() {
        clearTimeout(timer)
        listeners.delete(listener)
        resolve()
      }
      const listener = ({ phase }: EngineFrame) => {
        if (phase === 'idle') done()
      }
      listeners.add(listener)
    })
  }

  private change(engine: ChatEngine | null): void {
    if (engine === this.watched) return
    this.stop()
    this.watched = engine
    this.stop = engine === null ? () => {} : this.begin(engine)
  }

  private begin(engine: ChatEngine): () => void {
    // Coming back to the same engine goes on where it was.
    const before = this.history.peek()
    const history = before?.shape === engine.shape ? before : new EngineHistory(engine.shape)
    this.history.value = history
    this.isLive.value = false
    return engine.watch(
      frame => {
        history.push(frame)
        for (const listener of [...this.listeners]) listener(frame)
        this.version.value++
      },
      isLive => {
        this.isLive.value = isLive
      },
    )
  }
}
