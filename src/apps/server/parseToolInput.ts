// The arguments of a tool call as an object, for the APIs that want one; where they are broken off, an empty one.
export function parsedInput(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}
