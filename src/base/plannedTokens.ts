/** Tokens of a sequence that memory is planned for where nobody says how long it will be. */
export const PLANNED_TOKENS = 4096
