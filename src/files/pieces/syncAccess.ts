// Synchronous access to a stored file, which browsers give to workers only, and whose types are not among those of pages.

const ATTEMPTS = 10
const PAUSE_MS = 100

export interface SyncAccess {
  /** Bytes that were read; less than asked for at the end of the file. */
  read(target: Uint8Array | Uint32Array, options: { at: number }): number
  write(bytes: Uint8Array | Uint32Array, options: { at: number }): number
  truncate(size: number): void
  getSize(): number
  close(): void
}

/** What is used of a FileSystemDirectoryHandle and of the files in it, in types that need no page. */
export interface FolderHandle {
  getFileHandle(name: string, options?: { readonly create?: boolean }): Promise<StoredFileHandle>
}

export interface StoredFileHandle {
  getFile(): Promise<StoredBytes & { readonly size: number; slice(begin: number, end: number): StoredBytes }>
}

interface StoredBytes {
  arrayBuffer(): Promise<ArrayBuffer>
}

/** Opens, and makes where it is not there, a file that nobody else has open. */
export async function openSyncAccess(folder: FolderHandle, name: string): Promise<SyncAccess> {
  const file = await folder.getFileHandle(name, { create: true })
  for (let attempt = 1; ; attempt++) {
    try {
      return await (file as unknown as { createSyncAccessHandle(): Promise<SyncAccess> }).createSyncAccessHandle()
    } catch (error) {
      // A page that was just left may not have let go of it yet.
      if ((error as Error).name !== 'NoModificationAllowedError' || attempt === ATTEMPTS) throw error
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    }
  }
}
