//go:build !race

package wire

// raceEnabled keeps blocks in the Go heap, the only memory that the race
// detector watches.
const raceEnabled = false
