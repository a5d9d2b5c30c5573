// Which model answers, and where: one of the server's, or one in this tab. Others can be brought where the server allows it.
import { useEffect } from 'preact/hooks'
import { useApp } from '../state/app.js'
import { Dialog } from '../ui/dialog.js'
import { MoreModels } from './moreModels.js'
import { ServerModelList } from './serverModelList.js'
import { TabCard } from './tabModels.js'

export function ModelDialog({ onClose }: { onClose(): void }) {
  const { engines } = useApp()
  const { models } = engines
  const hasServer = engines.server.value.status !== 'none'
  useEffect(() => (hasServer ? engines.serverModels.watch() : undefined), [hasServer])
  return (
    <Dialog title="Model" onClose={onClose}>
      {hasServer && <ServerModelList />}
      {hasServer && <MoreModels />}
      <section class="model-section" aria-label="In this tab">
        <h3>In this tab</h3>
        {models.value.map(entry => (
          <TabCard key={entry.path} entry={entry} />
        ))}
        {models.value.length === 0 && (
          <p class="hint">No model can run in this tab: the host of this page offers none.</p>
        )}
      </section>
      <footer class="row end">
        <button type="button" class="button primary" onClick={onClose}>
          Done
        </button>
      </footer>
    </Dialog>
  )
}
