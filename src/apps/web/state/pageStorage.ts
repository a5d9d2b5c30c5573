// The browser's storage for small things, which may be full, and which a browser that blocks cookies refuses to show at all. The page
// works without: what cannot be kept lasts as long as the page.

export type PageStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>

/** What `find` gives, or memory where asking for it is refused. */
export function findStorage(find: () => PageStorage): PageStorage {
  try {
    const storage = find()
    storage.getItem('')
    return storage
  } catch {
    return new MemoryStorage()
  }
}

/** Keeps in memory what the storage has no room for. */
export function withoutFailing(storage: PageStorage): PageStorage {
  const unkept = new MemoryStorage()
  return {
    getItem: key => unkept.getItem(key) ?? storage.getItem(key),
    setItem(key, value) {
      unkept.removeItem(key)
      try {
        storage.setItem(key, value)
      } catch {
        unkept.setItem(key, value)
      }
    },
    removeItem(key) {
      unkept.removeItem(key)
      storage.removeItem(key)
    },
  }
}

class MemoryStorage implements PageStorage {
  private readonly items = new Map<string, string>()

  getItem(key: string): string | null {
    return this.items.get(key) ?? null
  }

  setItem(key: string, value: string): void {
    this.items.set(key, value)
  }

  removeItem(key: string): void {
    this.items.delete(key)
  }
}
