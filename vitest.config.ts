import { defineConfig } from 'vitest/config'

// Tests import the built package (`#moeflux/...` is dist/), so that worker threads and users run the same files.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    passWithNoTests: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 10_000 } },
    pool: 'forks',
    maxWorkers: 2,
  },
})
