// Hands a text to the user as a file.

export function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }))
  const link = document.createElement('a')
  link.href = url
  link.download = name.replace(/[\\/:*?"<>|\p{Cc}]+/gu, ' ').trim() || 'conversation'
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
