// A bundler that takes this package in moves its modules away from the kernels, threads and the model beside them.
import { existsSync } from 'node:fs'
import { MoefluxError } from './errors.js'

/** Throws where this module is not where the build put it. */
export function refuseBundle(): void {
  try {
    if (existsSync(new URL('./nodeInstalled.js', import.meta.url))) return
  } catch {} // a bundle of CommonJS has no such address
  throw new MoefluxError(
    'BUNDLED',
    'moeflux was bundled, and its kernels and threads are not beside it: leave it out of the bundle ' +
      '(esbuild --external:moeflux, external of rollup and webpack, serverExternalPackages of Next.js)',
  )
}
