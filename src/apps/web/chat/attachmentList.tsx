// Files of a message: small cards with name and size, whose text can be looked at, or which can be taken away again.
import { useState } from 'preact/hooks'
import type { Attachment } from '../state/attachments.js'
import * as format from '../ui/format.js'
import { Icon } from '../ui/icons.js'

interface Props {
  readonly attachments: readonly Attachment[]
  /** Where they can still be taken away. */
  onRemove?(index: number): void
}

export function AttachmentList({ attachments, onRemove }: Props) {
  if (attachments.length === 0) return null
  return (
    <ul class="attachments" aria-label="Files">
      {attachments.map((attachment, i) => (
        <li key={`${i} ${attachment.name}`} class="attachment">
          <AttachmentCard attachment={attachment} />
          {onRemove && (
            <button
              type="button"
              class="icon-button"
              aria-label={`Remove ${attachment.name}`}
              onClick={() => onRemove(i)}
            >
              <Icon name="close" size={16} />
            </button>
          )}
        </li>
      ))}
    </ul>
  )
}

/** The text is drawn when it is looked at: it may be long, and there may be many. */
function AttachmentCard({ attachment: { name, text } }: { attachment: Attachment }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="file" size={16} />
        <span class="attachment-name">{name}</span>
        <span class="attachment-size">{format.bytes(text.length)}</span>
      </summary>
      {isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolled by key
        <section tabIndex={0} aria-label={`Text of ${name}`}>
          {text}
        </section>
      )}
    </details>
  )
}
