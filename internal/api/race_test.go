//go:build race

package api_test

// raceFactor is how much more a decoder allocates under the race detector, which
// turns off the inlining that keeps small values off the heap.
const raceFactor = 2
