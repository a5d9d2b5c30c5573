// What an error says of a request may hold what the request held; what is sent back of it stays short.

const LONGEST = 2_000

export function shortMessage(message: string): string {
  return message.length > LONGEST ? `${message.slice(0, LONGEST)}…` : message
}
