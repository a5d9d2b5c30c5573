// Reads a server-sent event stream as text, without a client library in between.

export interface SentEvent {
  readonly event: string | null
  readonly data: string
}

/** All events of a response, comments left out. */
export async function sentEvents(response: Response): Promise<SentEvent[]> {
  return parseEvents(await response.text())
}

export function parseEvents(text: string): SentEvent[] {
  return text
    .split('\n\n')
    .filter(block => block !== '' && !block.startsWith(':'))
    .map(block => ({
      event: /^event: (.*)$/m.exec(block)?.[1] ?? null,
      data: /^data: (.*)$/m.exec(block)?.[1] ?? '',
    }))
}

export function postJson(url: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
}
