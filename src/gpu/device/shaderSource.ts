// Turns a WGSL file and a few constants into the text of one shader variant. WGSL has no preprocessor, and `override`
// constants cannot choose between types or leave out an `enable` line, so a handful of directives is added:
//   #include name          the text of the shader of that name, at most once
//   #if A == 4 / #if A     (also !=, <, >, and a leading !), #elif, #else, #endif; they nest
//   #for i A               its lines up to #endfor, A times, with $(i) counting up: for what must not be an array; they nest
// The constants themselves become `const NAME = value;` lines. Nothing else is rewritten.
import { shaders } from './shaders.generated.js'

export type ShaderName = keyof typeof shaders
export type ShaderConstants = Readonly<Record<string, number | boolean>>

export function shaderSource(name: ShaderName, constants: ShaderConstants): string {
  const header: string[] = []
  if (constants.SUBGROUPS) header.push('enable subgroups;')
  if (constants.TENSOR) {
    header.push('enable f16;', 'enable chromium_experimental_subgroup_matrix;')
    // What is uniform in a subgroup cannot be told from a thread's number.
    header.push('diagnostic(off, chromium.subgroup_matrix_uniformity);')
  }
  for (const [key, value] of Object.entries(constants)) {
    const literal = typeof value === 'boolean' ? String(value) : Number.isInteger(value) ? `${value}u` : `${value}f`
    header.push(`const ${key} = ${literal};`)
  }
  const lines: string[] = []
  expand(name, constants, lines, new Set())
  return [...header, ...lines].join('\n')
}

function expand(name: ShaderName, constants: ShaderConstants, out: string[], included: Set<string>): void {
  const text = shaders[name]
  if (text === undefined) throw new Error(`no shader ${name}`)
  const live: string[] = []
  takeLive(name, text, constants, live, included)
  out.push(...unroll(live, constants))
}

/** The lines of loops as often as they run. */
function unroll(lines: readonly string[], constants: ShaderConstants): string[] {
  const begin = lines.findIndex(line => /^\s*#for /.test(line))
  if (begin < 0) return [...lines]
  let depth = 0
  const end = lines.findIndex((line, i) => {
    if (i >= begin && /^\s*#for /.test(line)) depth++
    else if (i >= begin && /^\s*#endfor/.test(line)) depth--
    return i >= begin && depth === 0
  })
  const [, name, count] = /#for (\w+) (\w+)/.exec(lines[begin]) ?? []
  if (end < 0 || name === undefined) throw new Error(`shader loop '${lines[begin]}' is not understood`)
  const body = lines.slice(begin + 1, end)
  const turns = Array.from({ length: numberOf(count, constants) }, (_, i) =>
    unroll(
      body.map(line => line.replaceAll(`$(${name})`, String(i))),
      constants,
    ),
  )
  return [...lines.slice(0, begin), ...turns.flat(), ...unroll(lines.slice(end + 1), constants)]
}

/** The lines that conditions leave, with those of included files. */
function takeLive(
  name: ShaderName,
  text: string,
  constants: ShaderConstants,
  out: string[],
  included: Set<string>,
): void {
  // One entry per open #if: whether its lines are live, whether a branch was taken, whether its surroundings are live.
  const stack: { live: boolean; taken: boolean; outer: boolean }[] = []
  const isLive = () => stack.length === 0 || stack[stack.length - 1].live
  for (const line of text.split('\n')) {
    const directive = /^\s*#(\w+)\s*(.*?)\s*$/.exec(line)
    if (directive === null || /^(for|endfor)$/.test(directive[1])) {
      if (isLive()) out.push(line)
      continue
    }
    const [, word, rest] = directive
    const top = stack[stack.length - 1]
    if (word === 'if') {
      const outer = isLive()
      const live = outer && holds(rest, constants)
      stack.push({ live, taken: live, outer })
    } else if (word === 'elif') {
      top.live = top.outer && !top.taken && holds(rest, constants)
      top.taken ||= top.live
    } else if (word === 'else') {
      top.live = top.outer && !top.taken
      top.taken = true
    } else if (word === 'endif') {
      stack.pop()
    } else if (word === 'include') {
      if (isLive() && !included.has(rest)) {
        included.add(rest)
        expand(rest as ShaderName, constants, out, included)
      }
    } else throw new Error(`shader ${name}: unknown directive #${word}`)
  }
  if (stack.length > 0) throw new Error(`shader ${name}: #if without #endif`)
}

function holds(condition: string, constants: ShaderConstants): boolean {
  const match = /^(!?)(\w+)(?:\s*(==|!=|<|>)\s*(\w+))?$/.exec(condition)
  if (match === null) throw new Error(`shader condition '${condition}' is not understood`)
  const [, not, left, operator, right] = match
  const a = numberOf(left, constants)
  if (operator === undefined) return not === '!' ? a === 0 : a !== 0
  const b = numberOf(right, constants)
  return operator === '==' ? a === b : operator === '!=' ? a !== b : operator === '<' ? a < b : a > b
}

function numberOf(word: string, constants: ShaderConstants): number {
  return /^\d/.test(word) ? Number(word) : Number(constants[word] ?? 0)
}
