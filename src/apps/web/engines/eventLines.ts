// Server-sent events out of a response's bytes, however they are cut. A comment comes as it is, with its colon in front, to
// those who want comments: no data begins like that, which is JSON or a word.

export async function* eventData(body: ReadableStream<Uint8Array>, withComments = false): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let text = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      text += decoder.decode(value, { stream: true })
      const events = text.split('\n\n')
      text = events.pop() as string
      for (const event of events) {
        const data = event
          .split('\n')
          .filter(line => line.startsWith('data:'))
          .map(line => line.slice(5).replace(/^ /, ''))
        if (data.length > 0) yield data.join('\n')
        else if (withComments && event.startsWith(':')) yield event
      }
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
