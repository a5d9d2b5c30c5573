// Bytes that can be read at any offset: a file here, HTTP ranges and browser storage elsewhere. A source knows its name
// and size and nothing of what its bytes mean.

export interface ByteSource {
  readonly name: string // for error messages: a path or a URL
  /** Of a file that threads of Node can open by themselves; none of what is fetched, or made while it is read. */
  readonly path?: string
  readonly size: number
  /** Neighbours that are asked for in one moment come in one go. */
  readonly joinsReads?: boolean
  /** Fills `target` from `offset`, whole or not at all: a short or failed read throws ReadError. */
  read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void>
  /** Bytes that were read there are damaged: whoever keeps a copy of them drops it, and the next read goes to the origin. */
  forget?(offset: number, size: number): void
  close(): Promise<void>
}

/** A folder of byte sources. Names are relative, with `/`, and never leave the folder. */
export interface Folder {
  readonly location: string
  /** The whole text of a small file, or null where there is none. */
  readText(name: string): Promise<string | null>
  open(name: string): Promise<ByteSource>
}

/** A folder of the disk, for callers that must see what else is in it. */
export interface ListedFolder extends Folder {
  /** Names of all files below it, links followed, sorted. */
  list(): Promise<string[]>
  /** Bytes of a file; 0 where it is none. */
  sizeOf(name: string): Promise<number>
  /** What a file's name in the hub's cache says of its content; null elsewhere. */
  hubDigest(name: string): Promise<HubDigest | null>
}

export interface HubDigest {
  readonly kind: 'sha256' | 'git' // of the content; or as git names a blob
  readonly hex: string
}

/** Null where not all of them are files. */
export function pathsOf(sources: readonly ByteSource[]): string[] | null {
  const paths = sources.flatMap(({ path }) => path ?? [])
  return paths.length === sources.length ? paths : null
}
