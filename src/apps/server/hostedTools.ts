// Tools of both APIs that are no functions of the client's: those that the maker of an API runs on its own servers, which
// agents send along by habit, and those whose parameters a client leaves out because models were trained on them. Pure.

/** Run by whoever serves the model, which this server does not. An answer can do without them. */
const HOSTED =
  /^(web_search|web_fetch|code_execution|code_interpreter|file_search|image_generation|tool_search|mcp)(_|$)/

export function isHosted(type: string): boolean {
  return HOSTED.test(type)
}

export function hostedNotice(type: string): string {
  return `a request offers the tool '${type}', which runs on servers of the API's maker: left out`
}

export interface KnownTool {
  readonly name: string // where the request gives none
  readonly description: string
  readonly parameters: Readonly<Record<string, unknown>>
}

const path = { type: 'string', description: 'Path of a file or folder' }
const viewRange = { type: 'array', items: { type: 'integer' }, description: 'First and last line to show' }

const edits = (commands: readonly string[], more: Readonly<Record<string, unknown>> = {}) => ({
  type: 'object',
  properties: {
    command: { type: 'string', enum: commands },
    path,
    file_text: { type: 'string', description: 'Of create: what the file holds' },
    old_str: { type: 'string', description: 'Of str_replace: the text to replace, which must be there once' },
    new_str: { type: 'string', description: 'Of str_replace: what takes its place' },
    insert_line: { type: 'integer', description: 'Of insert: the line after which to insert' },
    insert_text: { type: 'string', description: 'Of insert: the text to insert' },
    view_range: viewRange,
    ...more,
  },
  required: ['command'],
})

const KNOWN: readonly (readonly [type: RegExp, tool: KnownTool])[] = [
  [
    /^bash_\d+$/,
    {
      name: 'bash',
      description: 'Runs a command in a shell that stays open between calls.',
      parameters: {
        type: 'object',
        properties: {
          command: { type: 'string', description: 'The command to run' },
          restart: { type: 'boolean', description: 'Start the shell anew' },
        },
      },
    },
  ],
  [
    /^text_editor_\d+$/,
    {
      name: 'str_replace_based_edit_tool',
      description: 'Shows, creates and edits text files.',
      parameters: edits(['view', 'create', 'str_replace', 'insert', 'undo_edit']),
    },
  ],
  [
    /^memory_\d+$/,
    {
      name: 'memory',
      description: 'Keeps notes in files below /memories, beyond this conversation.',
      parameters: edits(['view', 'create', 'str_replace', 'insert', 'delete', 'rename'], {
        old_path: path,
        new_path: path,
      }),
    },
  ],
]

/** What a client runs itself, by a type that says what it takes; null: nothing is known of the type. */
export function knownTool(type: string): KnownTool | null {
  return KNOWN.find(([pattern]) => pattern.test(type))?.[1] ?? null
}
