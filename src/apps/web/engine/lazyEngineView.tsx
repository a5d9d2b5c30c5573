// The engine view, with its charts, is fetched when it is looked at first.
import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'

export function LazyEngineView() {
  const [view, setView] = useState<{ readonly Component: ComponentType } | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    import('./engineView.js').then(
      ({ EngineView }) => setView({ Component: EngineView }),
      (error: unknown) => setProblem(String(error)),
    )
  }, [])
  if (view) return <view.Component />
  return (
    <section class="engine" aria-label="Engine">
      <div class="engine-empty">
        <p role="status">{problem === null ? 'Opening the engine …' : `The engine view cannot be shown: ${problem}`}</p>
      </div>
    </section>
  )
}
