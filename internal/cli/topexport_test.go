package cli

import (
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TopView is what top makes of two answers of /metrics.
type TopView struct{ v topView }

// TopBetween returns the view of two texts in Prometheus' format.
func TopBetween(before, after string, interval time.Duration) (TopView, error) {
	at := time.Date(2026, 11, 3, 9, 30, 0, 0, time.UTC)
	samples := [2]topSample{}
	for i, text := range []string{before, after} {
		samples[i] = newTopSample(at.Add(time.Duration(i) * interval))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			return TopView{}, err
		}
		samples[i].add(families)
		samples[i].tidy()
	}
	return TopView{viewBetween(samples[0], samples[1])}, nil
}

// TopScreen is a terminal and what was pressed on it.
type TopScreen struct {
	Width, Height int
	Live, Color   bool
	Keys          string
	Trouble       string
}

// Render draws a view after the keys. It reports whether one of them ends top.
func (v TopView) Render(t TopScreen) (text string, quit bool) {
	s := topScreen{paint: painter(t.Color), width: t.Width, height: t.Height, live: t.Live, trouble: t.Trouble}
	for _, key := range []byte(t.Keys) {
		quit = s.key(key) || quit
	}
	view := v.v.clone()
	view.arrange(s.sort, s.filter)
	return strings.Join(renderTop(view, s), "\n") + "\n", quit
}
