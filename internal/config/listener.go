package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Listener is an address to listen on or to advertise.
type Listener struct {
	Name string // Such as PLAINTEXT; upper case.
	Host string // Without brackets; "" for every interface.
	Port int32
}

// String returns the form in which the option is written.
func (l Listener) String() string {
	if strings.Contains(l.Host, ":") {
		return fmt.Sprintf("%s://[%s]:%d", l.Name, l.Host, l.Port)
	}
	return fmt.Sprintf("%s://%s:%d", l.Name, l.Host, l.Port)
}

// ParseListeners reads the items of listeners or advertised.listeners.
func ParseListeners(items []string) ([]Listener, error) {
	out := make([]Listener, 0, len(items))
	for _, item := range items {
		l, err := parseListener(item)
		if err != nil {
			return nil, err
		}
		for _, other := range out {
			if other.Name == l.Name {
				return nil, fmt.Errorf("two listeners are called %s: give each a name of its "+
					"own", l.Name)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func parseListener(item string) (Listener, error) {
	name, address, ok := strings.Cut(item, "://")
	colon := strings.LastIndexByte(address, ':')
	if !ok || name == "" || colon < 0 {
		return Listener{}, fmt.Errorf("listener %q: want NAME://host:port", clip(item))
	}
	host := address[:colon]
	port, err := strconv.ParseUint(address[colon+1:], 10, 16)
	if err != nil {
		return Listener{}, fmt.Errorf("listener %q: want a port from 0 to 65535", clip(item))
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() {
			return Listener{}, fmt.Errorf("listener %q: brackets hold an IPv6 address", clip(item))
		}
		host = inner
	} else if strings.ContainsAny(host, ":/[] \t") {
		return Listener{}, fmt.Errorf("listener %q: want a host name, an IPv4 address or a "+
			"bracketed IPv6 address", clip(item))
	}
	return Listener{Name: strings.ToUpper(name), Host: host, Port: int32(port)}, nil
}

// listeners checks the option of that name, or advertised.listeners: an address
// that clients are told must name a host and a port.
func listeners(advertised bool) Check {
	return checked("NAME://host:port, separated by commas", func(value string) string {
		all, err := ParseListeners(SplitList(value))
		switch {
		case err != nil:
			return err.Error()
		case len(all) == 0 && !advertised:
			return "want at least one address, as PLAINTEXT://127.0.0.1:9092"
		}
		for _, l := range all {
			if !advertised {
				continue
			}
			if l.Host == "" || l.Host == "0.0.0.0" || l.Host == "::" {
				return "clients cannot connect to " + l.String() + ": advertise a host that they " +
					"can reach"
			}
		}
		return ""
	})
}

// oneDirectory checks log.dirs.
func oneDirectory() Check {
	return checked("one directory", func(value string) string {
		if dirs := SplitList(value); len(dirs) != 1 || dirs[0] == "" {
			return "want exactly one directory: all partitions share one commit journal"
		}
		return ""
	})
}
