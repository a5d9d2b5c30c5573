// What a user can do so that Vulkan, Direct3D or Metal shows a GPU to Dawn. Pure.

export interface GpuSurroundings {
  readonly platform: NodeJS.Platform
  /** ID and ID_LIKE of /etc/os-release, separated by blanks. */
  readonly distribution: string
  /** GPUs that the system shows, whatever drivers they have (Linux). */
  readonly devices: readonly string[]
  readonly hasDawn: boolean
}

/** By distribution: the Vulkan loader, and Mesa's drivers for AMD and Intel. */
const INSTALLS: readonly (readonly [RegExp, string])[] = [
  [/debian|ubuntu/, 'apt install libvulkan1 mesa-vulkan-drivers'],
  [/fedora|rhel|centos/, 'dnf install vulkan-loader mesa-vulkan-drivers'],
  [/suse/, 'zypper install libvulkan1 libvulkan_radeon libvulkan_intel'],
  [/arch/, 'pacman -S vulkan-icd-loader vulkan-radeon vulkan-intel'],
]

export function gpuCure({ platform, distribution, devices, hasDawn }: GpuSurroundings): string {
  if (!hasDawn) return "GPU: npm left out the optional package 'webgpu'; reinstall without --omit=optional"
  if (platform === 'win32') return "GPU: install the driver of its maker (Windows' own may lack Direct3D 12)"
  if (platform === 'darwin') return 'GPU: needs Metal, which virtual machines often lack'
  const install =
    INSTALLS.find(([id]) => id.test(distribution))?.[1] ?? 'install the Vulkan loader and the drivers of Mesa'
  const drivers = `${install} (AMD, Intel); for NVIDIA its own driver, with the Vulkan part`
  if (devices.length > 0) return `GPU: ${devices.join(', ')} needs a Vulkan driver: ${drivers}`
  const container = 'docker run --device /dev/dri, or --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all'
  return `GPU: none is visible here (/dev/dri, /dev/nvidia*). If there is one: ${drivers}. In a container: ${container}`
}
