// The door of this room, which only Node goes through: bundles for browsers leave it out.
export { openRemoteFolder } from './nodeRemoteFolder.js'
