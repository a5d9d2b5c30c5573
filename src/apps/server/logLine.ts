// Text for a log that may hold what a client sent: it must neither begin a line of its own, nor
// control the terminal that shows it, nor fill the disk. Pure.

const MAX_LENGTH = 2_000 // characters

/** One short line without control characters. */
export function logLine(text: string): string {
  return shortMessage(text).replace(
    /[\p{Cc}\u2028\u2029]/gu,
    sign => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** The same for a text of several lines, such as a stack. */
export function logLines(text: string): string {
  return text.split('\n').map(logLine).join('\n')
}

/** Cuts a message: errors may quote what the request held, in logs and in answers. */
export function shortMessage(message: string): string {
  return message.length > MAX_LENGTH ? `${message.slice(0, MAX_LENGTH)}…` : message
}
