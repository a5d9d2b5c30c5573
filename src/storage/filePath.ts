// Whether a source's name is a path, so that threads of Node can open it by themselves; others are URLs, or made up.

export function isFilePath(name: string): boolean {
  return /^(\/|[A-Za-z]:[\\/]|\\\\)/.test(name)
}
