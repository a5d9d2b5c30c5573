// Whether a model is the one in use, or can be.
import { Icon } from '../ui/icons.js'

export function Choice({ isChosen, onChoose }: { isChosen: boolean; onChoose(): void }) {
  return isChosen ? (
    <span class="badge">
      <Icon name="check" size={14} />
      In use
    </span>
  ) : (
    <button type="button" class="button" onClick={onChoose}>
      Use
    </button>
  )
}
