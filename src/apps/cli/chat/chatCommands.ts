// The commands of a chat: lines that begin with a slash. Only says what a line means; the chat does it.

export type ChatCommand =
  | { readonly name: 'help' | 'clear' | 'retry' | 'undo' | 'stats' | 'exit' }
  | { readonly name: 'save' | 'load'; readonly file: string }
  | { readonly name: 'system'; readonly text: string | null } // null: show it; '': none from now on
  | { readonly name: 'model'; readonly model: string | null } // null: show it
  | { readonly name: 'think'; readonly on: boolean | null } // null: the other way round

export interface ChatCommandHelp {
  readonly usage: string
  readonly does: string
}

export const CHAT_COMMANDS: readonly ChatCommandHelp[] = [
  { usage: '/help', does: 'show this list' },
  { usage: '/clear', does: 'clear the conversation; the system prompt stays' },
  { usage: '/retry', does: 'answer the last message again' },
  { usage: '/undo', does: 'remove the last message and its answer' },
  { usage: '/system [text]', does: 'show or set the system prompt for the next message; /system clear removes it' },
  { usage: '/model [name]', does: 'show the model, or switch to another' },
  { usage: '/think [on|off]', does: 'let the model think before it answers, or not' },
  { usage: '/save <file>', does: 'write the conversation to a file' },
  { usage: '/load <file>', does: 'continue a saved conversation' },
  { usage: '/stats', does: 'show what the engine counted' },
  { usage: '/exit', does: 'quit; Ctrl-D or Ctrl-C twice do the same' },
]

/** The command of a line, null where the line is a message, and a text that says what is wrong with a command. */
export function parseChatCommand(line: string): ChatCommand | null | string {
  const match = /^\/([a-z]+)(?:\s+([\s\S]*))?$/i.exec(line.trim())
  if (match === null) return null
  const name = match[1].toLowerCase()
  const rest = (match[2] ?? '').trim()
  switch (name) {
    case 'help':
    case 'clear':
    case 'retry':
    case 'undo':
    case 'stats':
    case 'exit':
      return { name }
    case 'quit':
    case 'bye':
      return { name: 'exit' }
    case 'save':
    case 'load':
      return rest === '' ? `/${name} needs a file` : { name, file: rest }
    case 'system':
      return { name, text: rest === '' ? null : rest === 'clear' ? '' : rest }
    case 'model':
      return { name, model: rest === '' ? null : rest }
    case 'think':
      if (rest !== '' && rest !== 'on' && rest !== 'off') return `/think takes on or off, not '${rest}'`
      return { name, on: rest === '' ? null : rest === 'on' }
    default:
      return `there is no /${name}; /help shows the commands`
  }
}

/** For the Tab key. */
export function completeChatCommand(line: string): string[] {
  if (!line.startsWith('/') || /\s/.test(line)) return []
  return CHAT_COMMANDS.map(({ usage }) => usage.split(' ')[0]).filter(command => command.startsWith(line))
}
