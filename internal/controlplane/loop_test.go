package controlplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/metadata"
)

// loop is a quorum of one that the test steps through: decisions are staged, and
// applied when the test commits them. It keeps the log.
type loop struct {
	mu      sync.Mutex
	plane   *controlplane.ControlPlane
	log     [][]byte
	pending int  // Staged and not applied.
	hold    bool // Do returns errLost instead of waiting for the commit.
}

var errLost = errors.New("leadership lost; the change was on its way")

func (l *loop) Do(_ context.Context, decide func() ([]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, err := decide()
	if err != nil || entry == nil {
		return err
	}
	if err := l.plane.Stage(entry); err != nil {
		return err
	}
	l.log, l.pending = append(l.log, entry), l.pending+1
	if l.hold {
		return errLost
	}
	return l.commit()
}

// commit applies what is staged.
func (l *loop) commit() error {
	for ; l.pending > 0; l.pending-- {
		i := len(l.log) - l.pending
		if err := l.plane.Apply(uint64(i+1), l.log[i]); err != nil {
			return err
		}
	}
	return nil
}

// lose forgets what is staged, as a node does that leads no more.
func (l *loop) lose() {
	l.plane.Unstage()
	l.log, l.pending = l.log[:len(l.log)-l.pending], 0
}

// newPlane returns a control plane on a loop; nothing is known yet.
func newPlane(t testing.TB, static map[string]string) (*controlplane.ControlPlane, *loop) {
	t.Helper()
	plane, err := controlplane.New(controlplane.Options{Self: 1, Static: static})
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{plane: plane}
	plane.Attach(l)
	return plane, l
}

var registration = controlplane.Registration{
	Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}},
}

func boot(t testing.TB, plane *controlplane.ControlPlane, r controlplane.Registration) string {
	t.Helper()
	id, err := plane.Boot(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
