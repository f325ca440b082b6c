// Package cli is the command line: one file per command, for people at a
// terminal and for scripts.
//
// Every command but start, log and version is an ordinary client: it talks to
// any broker of the Kafka protocol, ours or another, and knows nothing of a
// broker's insides. The log commands read a data directory that no broker needs
// to be running on, and never write to it.
//
// What is printed, the same for every command:
//
//   - On a terminal, aligned tables with colours (NO_COLOR, --color).
//   - Elsewhere, plain lines: columns separated by one tab, no header, in the
//     order that the command's help names. Tabs, line ends and backslashes in a
//     value are escaped as \t, \n, \r and \\. New columns are added at the end.
//   - With --json, one JSON document; fields are added, never renamed.
//
// Results go to the standard output. Remarks, warnings, progress and errors go
// to the standard error. An error says what happened and what to do about it.
//
// Exit codes are part of the interface: see exitOK and its neighbours.
//
// Control characters that come from the wire are escaped before they reach a
// terminal: a record must not move the cursor of the one who reads it.
//
// Run may be called from any goroutine and keeps no state between calls; it
// ends soon after its context. Deliberately absent: anything that only a broker
// of ours would answer, except what doctor reads over HTTP.
package cli
