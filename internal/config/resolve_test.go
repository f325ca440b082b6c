package config_test

import (
	"testing"

	"github.com/strandline/strandline/internal/config"
)

func TestDefaultsAreValid(t *testing.T) {
	b := config.Default()
	if b.Topic.RetentionMs != 7*24*3600*1000 || b.Topic.FlushMessages != 1 || !b.Topic.CleanupDelete {
		t.Errorf("defaults of topics: %+v", b.Topic)
	}
}
