// What a machine does in a second where nobody has measured it.

/** Weights that one thread of the wasm backend gets through per second; measured on a server core. */
export const WEIGHTS_PER_THREAD = 6e9
/** The same for a GPU of the middle: a part of what its memory gives, since a token's products are small. */
export const GPU_WEIGHTS = 200e9
/** Random reads of one expert, eight at a time, from a good NVMe disk. */
export const READ_SPEED = 2.5e9
