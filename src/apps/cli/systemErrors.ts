// What the system refuses, in words: 'notes.md: no such file or folder' for "ENOENT: no such file or directory, stat 'notes.md'".

const WORDS = new Map([
  ['ENOENT', 'no such file or folder'],
  ['EACCES', 'this user may not do that'],
  ['EPERM', 'this user may not do that'],
  ['EEXIST', 'is there already'],
  ['EISDIR', 'is a folder, not a file'],
  ['ENOTDIR', 'a part of this path is a file, not a folder'],
  ['EROFS', 'the disk can only be read'],
  ['ELOOP', 'the links lead in a circle'],
  ['ENAMETOOLONG', 'the name is too long'],
  ['EMFILE', 'too many files are open'],
])

/** Null: it is no error of the system about a path, or not one that has words. */
export function systemErrorInWords(error: unknown): string | null {
  const { code, path, syscall } = (error ?? {}) as NodeJS.ErrnoException
  if (syscall === 'uv_cwd') return 'the folder that this was started in is gone: start it in another one'
  const words = WORDS.get(code ?? '')
  return words === undefined || path === undefined ? null : `${path}: ${words}`
}
