// The advice for a machine on which no GPU is used.
import { expect, test } from 'vitest'
import { gpuCure } from '#moeflux/apps/cli/gpuCure.js'

const linux = { platform: 'linux', distribution: 'ubuntu debian', devices: [], hasDawn: true } as const

test.each([
  ['a Debian that shows none', linux, /none is visible here.*apt install libvulkan1 mesa-vulkan-drivers.*--gpus all/],
  [
    'a Debian with a card',
    { ...linux, devices: ['/dev/dri/renderD128'] },
    /renderD128 needs a Vulkan driver: apt install/,
  ],
  ['a Fedora', { ...linux, distribution: 'fedora' }, /dnf install vulkan-loader mesa-vulkan-drivers/],
  ['an Arch', { ...linux, distribution: 'arch' }, /pacman -S vulkan-icd-loader/],
  ['another Linux', { ...linux, distribution: 'plan9' }, /install the Vulkan loader and the drivers of Mesa/],
  ['Windows', { ...linux, platform: 'win32' }, /the driver of its maker/],
  ['a Mac', { ...linux, platform: 'darwin' }, /Metal/],
  ['no Dawn', { ...linux, hasDawn: false }, /'webgpu'.*--omit=optional/],
] as const)('names the cure for %s', (_, surroundings, words) => {
  expect(gpuCure(surroundings)).toMatch(words)
})
