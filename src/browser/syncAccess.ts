// Synchronous access to a stored file, which browsers give to workers only, and whose types are not among those of pages.

export interface SyncAccess {
  /** Bytes that were read; less than asked for at the end of the file. */
  read(target: Uint8Array | Uint32Array, options: { at: number }): number
  write(bytes: Uint8Array | Uint32Array, options: { at: number }): number
  truncate(size: number): void
  getSize(): number
  close(): void
}

/** Opens, and makes where it is not there, a file that nobody else has open. */
export async function openSyncAccess(folder: FileSystemDirectoryHandle, name: string): Promise<SyncAccess> {
  const file = await folder.getFileHandle(name, { create: true })
  return await (file as unknown as { createSyncAccessHandle(): Promise<SyncAccess> }).createSyncAccessHandle()
}
