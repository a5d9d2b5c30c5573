// Time that a busy machine does not change.

/** Milliseconds that processors have worked for this process: what is slow by itself, not because the machine is busy. */
export function processorMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
