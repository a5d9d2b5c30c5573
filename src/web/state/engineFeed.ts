// Watches the chosen engine while its view is open, and only then: nobody watching costs an engine nothing.
import { effect, type ReadonlySignal, signal } from '@preact/signals'
import type { ChatEngine } from '../engines/chatEngine.js'
import type { View } from './app.js'
import { EngineHistory } from './engineHistory.js'

export class EngineFeed {
  readonly history = signal<EngineHistory | null>(null)
  /** Counts frames: whoever draws reads it to be drawn again. */
  readonly version = signal(0)
  readonly isLive = signal(false)
  private watched: ChatEngine | null = null

  constructor(engine: ReadonlySignal<ChatEngine | null>, view: ReadonlySignal<View>) {
    let stop = () => {}
    effect(() => {
      const wanted = view.value === 'chat' ? null : engine.value
      if (wanted === this.watched) return
      stop()
      stop = wanted === null ? () => {} : this.begin(wanted)
      this.watched = wanted
    })
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
        this.version.value++
      },
      isLive => {
        this.isLive.value = isLive
      },
    )
  }
}
