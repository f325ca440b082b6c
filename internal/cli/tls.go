package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/certs"
)

// registerTLS has the flags of a broker. Those for its clients have the names of the
// global flags that a client takes: what is in the environment of a broker is good for
// the commands that look at it too.
func (s *startFlags) registerTLS(f *pflag.FlagSet) {
	f.StringVar(&s.broker.TLS.Cert, "tls-cert", "",
		"PEM `file` with the certificate of the listeners for Kafka clients and HTTP, which then speak TLS alone")
	f.StringVar(&s.broker.TLS.Key, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&s.broker.TLS.CA, "tls-ca", "",
		"PEM `file` with the CA of which clients must have a certificate (default none asked for)")
	f.StringVar(&s.broker.ClusterTLS.Cert, "cluster-tls-cert", "",
		"PEM `file` with the certificate that this broker shows to the others, who must have one too")
	f.StringVar(&s.broker.ClusterTLS.Key, "cluster-tls-key", "", "PEM `file` with its private key")
	f.StringVar(&s.broker.ClusterTLS.CA, "cluster-tls-ca", "",
		"PEM `file` with the CA of the certificates of all brokers, and of nothing else")
}

// checkTLS refuses what would leave a listener open that was to be closed.
func (s *startFlags) checkTLS() error {
	t, c := s.broker.TLS, s.broker.ClusterTLS
	switch {
	case t.Given() && (t.Cert == "" || t.Key == ""):
		return usagef("--tls-cert and --tls-key belong together").
			hint("--tls-ca may be added, to let in only clients with a certificate.")
	case c.Given() && (c.Cert == "" || c.Key == "" || c.CA == ""):
		return usagef("--cluster-tls-cert, --cluster-tls-key and --cluster-tls-ca belong together").
			hint("Brokers are known by a certificate of their CA: see docs/operations/tls.md")
	case c.Given() && s.broker.ClusterListen == "":
		return usagef("--cluster-tls-cert is for the listener of a cluster, and there is none").
			hint("Give --cluster-listen or --voters, or use --tls-cert for clients.")
	}
	return nil
}

// addTLSFlags has the flags of a client.
func (a *app) addTLSFlags(f *pflag.FlagSet) {
	f.BoolVar(&a.flags.tls, "tls", false, "speak TLS to brokers, on their Kafka and HTTP listeners")
	f.StringVar(&a.flags.files.CA, "tls-ca", "",
		"PEM `file` with the CA of the brokers' certificates; implies --tls (default those that the system trusts)")
	f.StringVar(&a.flags.files.Cert, "tls-cert", "",
		"PEM `file` with a certificate to show to brokers that ask for one; implies --tls")
	f.StringVar(&a.flags.files.Key, "tls-key", "", "PEM `file` with its private key")
}

// prepareTLS reads the files of a client.
func (a *app) prepareTLS() error {
	if !a.flags.tls && !a.flags.files.Given() {
		return nil
	}
	config, err := certs.Dial(a.flags.files)
	if err != nil {
		return usagef("--tls-ca, --tls-cert and --tls-key: %w", err)
	}
	a.tls = config
	return nil
}

// scheme begins the address of an HTTP listener.
func scheme(secure bool) string {
	if secure {
		return "https://"
	}
	return "http://"
}

// trimScheme takes it off an address that somebody gave.
func trimScheme(address string) string {
	for _, s := range []string{"http://", "https://"} {
		address = strings.TrimPrefix(address, s)
	}
	return strings.TrimSuffix(address, "/")
}

// get asks a broker's HTTP listener.
func (a *app) get(ctx context.Context, address, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme(a.tls != nil)+address+path, nil)
	if err != nil {
		return nil, usagef("--http %s: %w", address, err)
	}
	client := http.DefaultClient
	if a.tls != nil {
		transport := &http.Transport{TLSClientConfig: a.tls.Clone(), DisableKeepAlives: true}
		client = &http.Client{Transport: transport}
	}
	return client.Do(req)
}

// soonExpired is how long before a certificate's end doctor speaks up.
const soonExpired = 14 * 24 * time.Hour

// checkCertificates reads certificates as start does, and looks at when they end.
func (d *doctor) checkCertificates(s *startFlags) {
	for _, c := range []struct {
		name  string
		files certs.Files
		peers bool
	}{{"tls-cert", s.broker.TLS, false}, {"cluster-tls-cert", s.broker.ClusterTLS, true}} {
		if !c.files.Given() {
			continue
		}
		source, err := certs.Load(c.files, certs.Options{Peers: c.peers, Now: d.now})
		if err != nil {
			d.say(statusProblem, c.name, err.Error(), "")
			continue
		}
		ends := source.Expires()
		if ends.Sub(d.now()) < soonExpired {
			d.say(statusWarning, c.name, fmt.Sprintf("%s expires on %s", c.files.Cert, timestamp(ends)),
				"Put another in its place: the broker reads it without a restart.")
			continue
		}
		d.ok(c.name, "%s is good until %s", c.files.Cert, timestamp(ends))
	}
}
