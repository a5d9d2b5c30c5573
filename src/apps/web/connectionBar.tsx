// Says that the server went away, as long as it is away. It comes back by itself: the page keeps looking.
import { useApp } from './state/app.js'
import { Icon } from './ui/icons.js'

export function ConnectionBar() {
  const { engines } = useApp()
  const isLost = engines.place.value === 'server' && engines.server.value.status === 'lost'
  return (
    <div class={isLost ? 'connection' : 'visually-hidden'} role="status">
      {isLost && (
        <>
          <Icon name="alert" size={16} />
          <span>The server does not answer. Looking for it …</span>
          <button type="button" class="link" onClick={() => void engines.connect()}>
            Try now
          </button>
        </>
      )}
    </div>
  )
}
