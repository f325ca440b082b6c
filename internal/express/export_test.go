package express

import (
	"net/http"
	"net/url"
)

// ReadHead reads the head of a request as a Lane does, and returns its size; false
// if the Lane would not take it, or not yet.
func ReadHead(raw []byte, routes []Route) (r *http.Request, size int, ok bool) {
	for i := range routes {
		routes[i].begin = routes[i].Method + " " + routes[i].Prefix
	}
	var h head
	if h.read(raw, routes) != takes {
		return nil, 0, false
	}
	return &http.Request{
		Method: h.route.Method, URL: &url.URL{Path: h.path}, RequestURI: h.path, Host: h.host, Header: h.fields,
		ContentLength: int64(h.body),
	}, h.size, true
}
