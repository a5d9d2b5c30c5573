// The commands of a chat: lines that begin with a slash. Only says what a line means; the chat does it.

export type ChatCommand =
  | { readonly name: 'help' | 'clear' | 'retry' | 'undo' | 'list' | 'stats' | 'exit' }
  | { readonly name: 'save' | 'load'; readonly file: string }
  | { readonly name: 'system'; readonly text: string | null } // null: show it; '': none from now on
  | { readonly name: 'model'; readonly model: string | null } // null: show it
  | { readonly name: 'think'; readonly on: boolean | null } // null: the other way round
  | { readonly name: 'set'; readonly setting: string | null; readonly value: string } // null: show all

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
  {
    usage: '/set [name value]',
    does: 'show or change how answers are chosen: /set temperature 0.5; default resets it',
  },
  { usage: '/model [name]', does: 'show the model, or switch to another' },
  { usage: '/list', does: 'list the models that are here' },
  { usage: '/think [on|off]', does: 'let the model think before it answers, or not' },
  { usage: '/save <file>', does: 'write the conversation to a file' },
  { usage: '/load <file>', does: 'continue a saved conversation' },
  { usage: '/stats', does: 'show the speed of the last answer, and what the engine counted' },
  { usage: '/bye', does: 'quit; /exit, Ctrl-D or Ctrl-C twice do the same' },
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
    case 'list':
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
    case 'set':
      return parseSet(rest)
    case 'model':
      return { name, model: rest === '' ? null : rest }
    case 'think':
      if (rest !== '' && rest !== 'on' && rest !== 'off') return `/think takes on or off, not '${rest}'`
      return { name, on: rest === '' ? null : rest === 'on' }
    default:
      return `there is no /${name}; /help shows the commands`
  }
}

/** 'temperature 0.5', as ollama also 'parameter temperature 0.5' and 'system You are …'. */
function parseSet(rest: string): ChatCommand | string {
  const [, setting = '', value = ''] = /^(?:parameter\s+)?(\S+)\s*([\s\S]*)$/i.exec(rest) ?? []
  if (setting === '') return { name: 'set', setting: null, value }
  if (value === '') return `/set ${setting} needs a value, or default`
  if (setting.toLowerCase() === 'system') return { name: 'system', text: value === 'default' ? '' : value }
  return { name: 'set', setting: setting.toLowerCase().replaceAll('_', '-'), value }
}

/** For the Tab key. */
export function completeChatCommand(line: string): string[] {
  if (!line.startsWith('/') || /\s/.test(line)) return []
  return CHAT_COMMANDS.map(({ usage }) => usage.split(' ')[0]).filter(command => command.startsWith(line))
}
