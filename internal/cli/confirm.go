package cli

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks the user before something that cannot be undone. A script is not
// asked: it has said what it wants.
func (a *app) confirm(yes bool, question string, args ...any) error {
	if yes || !isTerminal(a.env.Stdin) || !isTerminal(a.env.Stderr) {
		return nil
	}
	fmt.Fprintf(a.env.Stderr, "%s [y/N] ", visible(fmt.Sprintf(question, args...)))
	line, err := bufio.NewReader(a.env.Stdin).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	if err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return failf("not done").hint("Answer y, or give --yes.")
}
