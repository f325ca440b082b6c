package broker

import "testing"

// TestAdvertised: clients are told an address that can be one, or the broker does not
// start.
func TestAdvertised(t *testing.T) {
	const listening = "127.0.0.1:9092"
	for _, c := range []struct {
		configured, listening, host string
		port                        int32 // 0 for an error.
	}{
		{"", listening, "127.0.0.1", 9092},
		{"", "[::1]:9092", "::1", 9092},
		{"queue.example.com", listening, "queue.example.com", 9092},
		{"queue:1", "0.0.0.0:9092", "queue", 1},
		{"::1", listening, "::1", 9092},
		{"[::1]", listening, "::1", 9092},
		{"[::1]:7", listening, "::1", 7},
		{"[fe80::1%eth0]:7", listening, "fe80::1%eth0", 7},
		{"", "0.0.0.0:9092", "", 0},
		{"0.0.0.0", listening, "", 0},
		{"[::]:1", listening, "", 0},
		{":9092", listening, "", 0},
		{"queue:0", listening, "", 0},
		{"queue:99999", listening, "", 0},
		{"queue:port", listening, "", 0},
		{"a:b:c", listening, "", 0},
		{"http://queue:1", listening, "", 0},
		{"PLAINTEXT://queue", listening, "", 0},
		{"queue/path", listening, "", 0},
		{"user@queue:1", listening, "", 0},
		{"one two:1", listening, "", 0},
	} {
		host, port, err := advertised(c.configured, c.listening)
		if host != c.host || port != c.port || (err == nil) != (c.port != 0) {
			t.Errorf("%q, listening on %s: %q, %d, %v", c.configured, c.listening, host, port, err)
		}
	}
}
