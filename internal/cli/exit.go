package cli

import (
	"fmt"
	"strings"
)

// The exit codes. The help of the program lists them.
const (
	exitOK          = 0
	exitFailed      = 1   // The broker refused, or part of the work failed.
	exitUsage       = 2   // The command line or a configuration is wrong.
	exitUnreachable = 3   // No broker answered.
	exitUnsound     = 4   // doctor, log verify or log repair found something wrong.
	exitInterrupted = 130 // Interrupted before the work was done.
)

const exitCodesHelp = `Exit codes:
  0    done
  1    the broker refused it, or a part of it failed
  2    the command line or a configuration file is wrong
  3    no broker could be reached
  4    doctor, log verify or log repair found something wrong
  130  interrupted before it was done`

// failure is an error for people: what happened, and what to do.
type failure struct {
	code    int
	message string
	hints   []string // Each a sentence or a command line.
	cause   error
}

// Error implements error.
func (f *failure) Error() string {
	return strings.Join(append([]string{f.message}, f.hints...),
		"; ")
}

// Unwrap returns what the failure is about.
func (f *failure) Unwrap() error { return f.cause }

// hint adds what to do about it.
func (f *failure) hint(format string, args ...any) *failure {
	f.hints = append(f.hints, fmt.Sprintf(format, args...))
	return f
}

// failf is a failure of the work asked for.
func failf(format string, args ...any) *failure {
	return newFailure(exitFailed, format, args...)
}

// usagef is a failure to understand what was asked for.
func usagef(format string, args ...any) *failure {
	return newFailure(exitUsage, format, args...)
}

func newFailure(code int, format string, args ...any) *failure {
	err := fmt.Errorf(format, args...)
	return &failure{code: code, message: err.Error(), cause: err}
}

// silent ends the program with a code after the command has said it all.
func silent(code int) *failure { return &failure{code: code} }
