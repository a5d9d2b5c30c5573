// What the user wrote: a long text shows its beginning, and the rest when asked for.
import { useState } from 'preact/hooks'

const LONG_CHARACTERS = 1500
const LONG_LINES = 16

export function FoldedText({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false)
  if (!isLong(text)) return <div class="bubble">{text}</div>
  return (
    <div class="bubble long">
      <div class={isOpen ? '' : 'folded'}>{isOpen ? text : beginningOf(text)}</div>
      <button type="button" class="link fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? 'Show less' : `Show all ${text.length.toLocaleString('en')} characters`}
      </button>
    </div>
  )
}

function isLong(text: string): boolean {
  return text.length > LONG_CHARACTERS || text.split('\n', LONG_LINES + 1).length > LONG_LINES
}

/** No more than can be seen: a page of a book is not laid out to be hidden. */
function beginningOf(text: string): string {
  return text.slice(0, LONG_CHARACTERS).split('\n', LONG_LINES).join('\n')
}
