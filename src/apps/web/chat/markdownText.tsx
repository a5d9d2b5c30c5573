// A text in Markdown, drawn block by block so that a growing answer redraws its last block only.
import { useLayoutEffect, useMemo, useRef } from 'preact/hooks'
import { type Block, renderBlocks } from './markdown.js'
import { drawMath } from './mathDrawing.js'

const COPIED_MS = 1500

export function MarkdownText({ text, isGrowing }: { text: string; isGrowing?: boolean }) {
  const before = useRef<readonly Block[]>([])
  const blocks = useMemo(() => {
    before.current = renderBlocks(text, before.current)
    return before.current
  }, [text])
  const drawn = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (drawn.current) drawMath(drawn.current)
  }, [blocks])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the buttons inside are reached by key on their own
    // biome-ignore lint/a11y/noStaticElementInteractions: listens for the buttons inside
    <div ref={drawn} class={`markdown${isGrowing ? ' growing' : ''}`} onClick={copyCode}>
      {blocks.map((block, i) => (
        // sanitized by renderBlocks
        <div key={`${i}`} class="block" dangerouslySetInnerHTML={{ __html: block.html }} />
      ))}
    </div>
  )
}

async function copyCode(event: MouseEvent): Promise<void> {
  const button = (event.target as Element).closest('button.copy')
  const code = button?.closest('.code')?.querySelector('code')
  if (!button || !code) return
  const copied = await copyText(code.textContent ?? '')
  button.textContent = copied ? 'Copied' : 'Not allowed'
  setTimeout(() => {
    button.textContent = 'Copy'
  }, COPIED_MS)
}

/** Pages over plain HTTP in a local network have no clipboard, but can still copy what is selected. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const field = document.createElement('textarea')
    field.value = text
    field.className = 'visually-hidden'
    document.body.append(field)
    field.select()
    const copied = document.execCommand('copy')
    field.remove()
    return copied
  }
}
