package controlplane

import (
	"context"

	"github.com/strandline/strandline/internal/metadata"
)

// RefusedBy is for tests.
var RefusedBy = refusedBy

// Await is for tests.
func (c *ControlPlane) Await(ctx context.Context, f func(*metadata.Image) bool) error {
	return c.await(ctx, f)
}
