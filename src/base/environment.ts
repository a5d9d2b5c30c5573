/** Variables by their names: `process.env`, in types that need no Node. */
export type Environment = Readonly<Record<string, string | undefined>>
