package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo says what was built. The field names are those of --json.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Time     string `json:"time"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kafka    string `json:"kafka"` // The release whose protocol is spoken.
}

const kafkaRelease = "4.4"

// buildVersion reads what the Go toolchain has written into the binary. There is
// no version to set with linker flags, and none to forget.
func buildVersion() versionInfo {
	v := versionInfo{
		Version: "devel", Go: runtime.Version(), Kafka: kafkaRelease,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what this is",
		Long: "Say what this is.\n\n" + resultHelp[versionInfo]("version", "revision", "Go version",
			"platform", "Kafka protocol"),
		Args: wantArgs(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			t := newTable("version", "revision", "go", "platform", "kafka protocol")
			t.add(v.Version, orDash(shortRevision(v)), v.Go, v.Platform, v.Kafka)
			return a.out.show(v, t)
		},
	}
}

func shortRevision(v versionInfo) string {
	r := v.Revision
	if len(r) > 12 {
		r = r[:12]
	}
	if r != "" && v.Modified {
		r += "+changes"
	}
	return r
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
