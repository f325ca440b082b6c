// Package journal is the broker-wide commit journal.
package journal
