package harness

import (
	"path/filepath"
	"testing"
	"time"
)

// Python makes a virtual environment with the clients of test/clients, and returns its
// interpreter.
func Python(t testing.TB, limit time.Duration) string {
	t.Helper()
	Needs(t, "python3")
	venv := filepath.Join(t.TempDir(), "venv")
	Run(t, limit, ".", "python3", "-m", "venv", venv)
	Run(t, limit, filepath.Join(Root(t), "test", "clients", "python"), filepath.Join(venv, "bin", "pip"), "install", "-q",
		"--disable-pip-version-check", "-r", "requirements.txt")
	return filepath.Join(venv, "bin", "python")
}
