package commitlog_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
)

// The documents of the formats name the numbers that the code has.
func TestFormatDocuments(t *testing.T) {
	for file, want := range commitlog.FormatFacts() {
		data, err := os.ReadFile("../../docs/format/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fact := range want {
			if !strings.Contains(string(data), fact) {
				t.Errorf("docs/format/%s does not say %q", file, fact)
			}
		}
	}
}

func ExampleLogDir() {
	fmt.Println(commitlog.LogDir(logID(7)))
	// Output: topics/07000000000000000000000000000000-7
}
