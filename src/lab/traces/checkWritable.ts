// Tells before long work that its result could not be written. Leaves what is there as it is, and nothing new.
import { open, realpath, rm, stat } from 'node:fs/promises'

export async function checkWritable(path: string): Promise<void> {
  const info = await stat(path).catch(() => null)
  // Who reads from a pipe would see it opened and closed.
  if (info !== null && !info.isFile() && !info.isDirectory()) return
  await (await open(path, 'a')).close()
  if (info === null) await rm(await realpath(path)) // a link that led nowhere stays
}
