// Lines of the log may hold what a client sent, which must neither begin a line of its own, nor steer the terminal that shows it, nor
// fill the disk.
/** One short line without control characters. */
export function logLine(text: string): string {
  return shortMessage(text).replace(
    /[\p{Cc}\u2028\u2029]/gu,
    sign => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** The same of a text that has lines of its own, such as a stack. */
export function logLines(text: string): string {
  return text.split('\n').map(logLine).join('\n')
}

/** What an error says of a request may hold what the request held; what is sent back of it stays short. */
const LONGEST = 2_000

export function shortMessage(message: string): string {
  return message.length > LONGEST ? `${message.slice(0, LONGEST)}…` : message
}
