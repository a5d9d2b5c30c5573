/** A reader that took what it should not have taken, or made of it what it should not. */
export class Wrong extends Error {}
