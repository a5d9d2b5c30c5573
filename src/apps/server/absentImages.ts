// What becomes of images in a request, as long as no model here can see: they are refused, or, where the server was told
// so, a line of text stands in their place, so that a conversation that holds one can go on. Pure.

export type ImageHandling = 'refuse' | 'describe-absent'

export const ABSENT_IMAGE = '[An image was here. This model reads text alone and cannot see it.]'

const IMAGE_TYPES = new Set(['image', 'image_url', 'input_image'])

/** The messages, or items, of any of the APIs; `handling` says whether anything changes. */
export function withoutImages<Message>(messages: readonly Message[], handling: ImageHandling): readonly Message[] {
  return handling === 'refuse' ? messages : messages.map(message => withoutParts(message) as Message)
}

/** Images are among the parts of a message's content, and of what a tool gave back. */
function withoutParts(value: unknown): unknown {
  if (value === null || typeof value !== 'object') return value
  const changed: Record<string, unknown> = { ...value }
  for (const field of ['content', 'output']) {
    const parts = changed[field]
    if (Array.isArray(parts)) changed[field] = parts.map(part => (isImage(part) ? ABSENT : withoutParts(part)))
  }
  return changed
}

const ABSENT = { type: 'text', text: ABSENT_IMAGE }

function isImage(part: unknown): boolean {
  return IMAGE_TYPES.has((part as { type?: string } | null)?.type ?? '')
}
