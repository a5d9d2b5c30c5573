// What is found out about a model folder, file by file; and what finding out needs of the folder.
import { MoefluxError } from '../base/errors.js'
import type { Folder } from './source.js'

export interface VerifyOptions {
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
  readonly signal?: AbortSignal
}

/** A folder of the disk: whoever checks it must see what else is there. */
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

/** What all bytes of a file were compared with: moeflux.json, the checksums of its blocks, its name in the hub's cache. */
export type Comparison = 'sha256' | 'blocks' | 'hub'

export interface ComparedFile {
  readonly name: string
  readonly size: number
  readonly with: Comparison
}

/** A file of the model whose bytes could not be compared with anything. */
export interface UncomparedFile {
  readonly name: string
  readonly reason: string
  readonly looked: string | null // what was found without
}

export interface VerifyReport {
  readonly kind: 'packed' | 'mlx' | 'hf' | 'gguf' | 'unknown'
  readonly compared: readonly ComparedFile[] // and right
  readonly uncompared: readonly UncomparedFile[] // and nothing wrong was found
  readonly extra: readonly string[] // files that are none of the model's
  readonly bytes: number // read
  readonly problems: readonly MoefluxError[]
}

/** Counts what is read, for the report and for who looks on. */
export class ReadCounter {
  bytes = 0

  constructor(
    private readonly total: number,
    private readonly options: VerifyOptions,
  ) {}

  readonly add = (bytes: number): void => {
    this.bytes += bytes
    this.options.onProgress?.({ phase: 'verify', loaded: Math.min(this.bytes, this.total), total: this.total })
  }
}

/** Whether a problem is one of this file. */
export function isAbout(problem: MoefluxError, folder: Folder, name: string): boolean {
  return (problem as { file?: unknown }).file === `${folder.location}/${name}`
}

/** Runs a check; what is wrong with the folder is a problem, anything else is thrown. */
export async function collect(problems: MoefluxError[], check: () => Promise<void>): Promise<void> {
  try {
    await check()
  } catch (error) {
    if (!(error instanceof MoefluxError)) throw error
    problems.push(error)
  }
}
