// What a step tells the kernels. A run is some tokens of one sequence; its recurrent state is read from one slot of the
// state pool and written to another, so that nothing committed changes before the step ends. firstRow: the first position that the
// head for drafts has a row of.
struct Token { id: u32, position: u32, run: u32, index: u32, pages: u32, stateIn: u32, stateOut: u32, firstRow: u32 }
struct Run { first: u32, count: u32, stateIn: u32, stateOut: u32 }
