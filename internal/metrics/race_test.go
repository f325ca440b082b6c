//go:build race

package metrics_test

// slowdown is about how much slower the race detector makes a test.
const slowdown = 25
