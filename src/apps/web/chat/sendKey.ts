// Whether a key sends what is being written: as the user has set it, in the field for messages and where they are edited.
import type { Settings } from '../state/settings.js'

export function isSendKey(event: KeyboardEvent, { sendKey }: Settings): boolean {
  if (event.key !== 'Enter' || event.isComposing) return false
  if (event.ctrlKey || event.metaKey) return true
  return sendKey === 'enter' && !event.shiftKey
}
