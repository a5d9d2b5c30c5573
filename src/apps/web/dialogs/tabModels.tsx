// Models that can run in this very tab: what loading one costs, how far it is, and what is kept on the device.
import { useEffect, useState } from 'preact/hooks'
import type { ModelEntry } from '#moeflux/apps/browser/page.js'
import type { TabEngine, TabStorage } from '../engines/tabEngine.js'
import { useApp } from '../state/app.js'
import * as format from '../ui/format.js'
import { Icon } from '../ui/icons.js'
import { LoadingBar } from '../ui/loadingBar.js'
import { Choice } from './choice.js'

export function TabCard({ entry }: { entry: ModelEntry }) {
  const { engines } = useApp()
  const tab = engines.tab.value
  const isOwn = tab.status !== 'empty' && tab.entry.path === entry.path
  const status = isOwn ? tab.status : 'empty'
  const isChosen = engines.place.value === 'tab' && status === 'ready'
  return (
    <section class={`card${isChosen ? ' chosen' : ''}`} aria-label={`${entry.name} in this tab`}>
      <div class="card-head">
        <Icon name="tab" size={22} />
        <div>
          <h3>{entry.name}</h3>
          <p>In this tab, without a server</p>
        </div>
        {status === 'ready' && <Choice isChosen={isChosen} onChoose={() => engines.choose('tab')} />}
        {(status === 'empty' || status === 'failed') && (
          <button type="button" class="button primary" onClick={() => void engines.load(entry)}>
            {status === 'failed' ? 'Try again' : 'Load'}
          </button>
        )}
        {status === 'loading' && (
          <button type="button" class="button" onClick={() => void engines.unload()}>
            Cancel
          </button>
        )}
      </div>
      {status !== 'ready' && (
        <p class="detail">
          {format.bytes(entry.residentBytes)} to begin with; {format.bytes(entry.expertBytes)} of experts are fetched as
          they are needed. Both are kept on this device.
        </p>
      )}
      {isOwn && tab.status === 'loading' && <LoadingBar progress={tab.progress} />}
      {isOwn && tab.status === 'failed' && (
        <p class="problem" role="alert">
          {tab.failure.message}
        </p>
      )}
      {isOwn && tab.status === 'ready' && <TabDetails engine={tab.engine} />}
    </section>
  )
}

function TabDetails({ engine }: { engine: TabEngine }) {
  const app = useApp()
  const [storage, setStorage] = useState<TabStorage | null>(null)
  const [reads, setReads] = useState(0)
  // Read again after clearing.
  useEffect(() => {
    let isShown = true
    const read = async () => {
      const found = await engine.storage().catch(() => null)
      if (isShown) setStorage(found)
    }
    void read()
    const timer = setInterval(read, 2000)
    return () => {
      isShown = false
      clearInterval(timer)
    }
  }, [engine, reads])
  const clear = async () => {
    try {
      await engine.clearCache()
      app.notify('The stored files are deleted. The model stays in memory until you unload it.')
    } catch (error) {
      app.notify(`The cache could not be cleared: ${error instanceof Error ? error.message : String(error)}`)
    }
    setReads(reads + 1)
  }
  return (
    <>
      <p class="detail">{engine.shape.description}</p>
      {storage && (
        <p class="detail" role="status">
          {storage.bytes > 0 ? `${format.bytes(storage.bytes)} kept on this device` : 'Nothing kept on this device'}
          {storage.experts > 0 && `, ${format.count(storage.experts)} experts among it`}
          {storage.quota > 0 && ` · room for ${format.bytes(storage.quota)}`}
          {storage.isOthers && ' · another tab is in charge of it'}
        </p>
      )}
      <div class="row end">
        {storage && !storage.isOthers && (
          <button type="button" class="button quiet" onClick={() => void clear()}>
            Clear the cache
          </button>
        )}
        <button type="button" class="button quiet" onClick={() => void app.engines.unload()}>
          Unload
        </button>
      </div>
    </>
  )
}
