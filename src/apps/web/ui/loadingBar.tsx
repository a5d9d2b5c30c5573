// How far a model has been loaded.
import type { TabProgress } from '../engines/tabEngine.js'
import * as format from './format.js'

export function LoadingBar({ progress }: { progress: TabProgress | null }) {
  const { phase = 'starting', loaded = 0, total = 0 } = progress ?? {}
  return (
    <div class="loading">
      <progress max={total || 1} value={total ? loaded : undefined} aria-label="Loading the model" />
      <p class="detail" role="status">
        {`${phase.charAt(0).toUpperCase()}${phase.slice(1)}`}
        {total > 0 && `: ${format.bytes(loaded)} of ${format.bytes(total)}`}
      </p>
    </div>
  )
}
