// Whether a GPU has memory of its own. WebGPU does not say, so names must do. A GPU that shares the machine's memory and is
// taken for one of its own would be allocated until everything else on the machine suffers; the other mistake costs
// some room. So only what is surely a card counts as one.

export function hasOwnMemory(
  info: Pick<GPUAdapterInfo, 'vendor' | 'architecture' | 'device' | 'description'>,
): boolean {
  const name = `${info.device} ${info.description}`
  if (/nvidia/i.test(info.vendor)) return !/tegra|jetson|orin|xavier|thor|gb10/i.test(name)
  if (/amd|ati/i.test(info.vendor)) return /radeon (rx|vii|pro (w|v|vii|duo))|instinct|firepro/i.test(name)
  if (/intel/i.test(info.vendor)) return /hpg|hpc/i.test(info.architecture) || /arc\W.*\b[ab]\d{2,3}\b/i.test(name)
  return false
}
