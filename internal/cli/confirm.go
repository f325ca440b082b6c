package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// confirm asks the user before something that cannot be undone. A script is not
// asked: it has said what it wants.
func (a *app) confirm(yes bool, question string, args ...any) error {
	if yes || !isTerminal(a.env.Stdin) {
		return nil
	}
	prompt := a.env.Stderr
	if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		defer tty.Close() //nolint:errcheck // It was only written to.
		prompt = tty      // Seen even if the standard error goes elsewhere.
	}
	fmt.Fprintf(prompt, "%s [y/N] ", visible(fmt.Sprintf(question, args...)))
	line, err := bufio.NewReader(a.env.Stdin).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	if err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return failf("not done").hint("Answer y, or give --yes.")
}
