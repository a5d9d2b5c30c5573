// What a step tells the kernels. A run is some tokens of one sequence; its recurrent state is read
// from one slot of the state pool and written to another, so that nothing committed changes before
// the step ends.
#include token
struct Run { first: u32, count: u32, stateIn: u32, stateOut: u32 }
