/** Resolves with Ctrl-C, or the SIGTERM by which service managers stop a program. */
export async function stopAsked(interrupted: AbortSignal): Promise<void> {
  await new Promise<void>(resolve => {
    if (interrupted.aborted) resolve()
    interrupted.addEventListener('abort', () => resolve(), { once: true })
    process.once('SIGTERM', () => resolve())
  })
}
