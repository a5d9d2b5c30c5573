export * from './errors.js'
