//go:build !race

package api_test

// raceFactor: see the race detector's version.
const raceFactor = 1
