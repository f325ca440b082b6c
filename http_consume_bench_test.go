package strandline_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkConsumeHTTP is the way of 1 KiB records out, in answers of 1 MiB, the
// client's CPU included.
func BenchmarkConsumeHTTP(b *testing.B) {
	const partition = "0" // All records, so that there are 1,000 for each answer.
	value := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("0123456789abcdef"), 64))
	record := `{"partition":` + partition + `,"value":"` + value + `"}`
	const perRequest, requests = 100, 100
	addr := startBench(b)
	c := dialHTTP(b, addr)
	fill := requestOf(`{"records":[` + strings.Repeat(record+",", perRequest-1) + record + `]}`)
	for range requests {
		if err := c.post(fill); err != nil {
			b.Fatal(err)
		}
	}
	for name, query := range map[string]string{"group": "group=g&rewind=true", "partition": "partition=" + partition + "&offset=0"} {
		b.Run(name, func(b *testing.B) {
			get := fmt.Appendf(nil, "GET /v1/topics/bench/consume?max_bytes=1100000&%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query)
			before := cpuTime(b)
			for b.Loop() {
				if err := c.post(get); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N*1000), "cpu-us/record")
		})
	}
}
