// Package httpapi answers over HTTP what needs no Kafka client: the JSON API
// under /v1 (docs/http-api.md; the table of it is routes.go), health (/healthz
// says that the process lives, /readyz that it serves) and what the broker has
// noticed for `strandline doctor` (/v1/doctor).
//
// It works on the same services as package api, and never through it: a rule
// that both follow stands in a room below both (topics, coordinator/groups,
// refusal), and records are built into batches once and appended.
//
// It may assume that its handlers are called from any number of goroutines, and
// nothing of what a client sends: bodies are bounded in size, in time and in what
// all of them take together, and read strictly (package strictjson). Every
// refusal is JSON with Kafka's name of the error and the fitting status
// (errors.go).
//
// Deliberately absent: a listener; package broker owns it, with its time-outs.
package httpapi

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/strandline/strandline/internal/reach"
)

// Broker is what the handlers ask about the broker itself.
type Broker interface {
	// Ready is closed when the broker serves.
	Ready() <-chan struct{}
	// Unreached returns the clients that were told an address and never came.
	Unreached() []reach.Finding
	// Corrupt returns the damage in stored data that was found.
	Corrupt() []Corrupt
	// Health returns what the cluster lacks.
	Health() Health
}

// Unreached is a client in the answer of /v1/doctor.
type Unreached struct {
	Client     string    `json:"client"`
	ClientID   string    `json:"client_id"`
	Advertised string    `json:"advertised"`
	Since      time.Time `json:"since"`
	Asked      int       `json:"asked"`
}

// Corrupt is damage in stored data in the answer of /v1/doctor.
type Corrupt struct {
	Topic     string    `json:"topic"` // Its id, if it has no name any more.
	Partition int32     `json:"partition"`
	File      string    `json:"file"` // Within the data directory.
	Position  int64     `json:"position"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
}

// Doctor is the answer of /v1/doctor.
type Doctor struct {
	Unreached []Unreached `json:"unreached_clients"`
	// Corrupt has the first MaxCorrupt of CorruptTotal.
	Corrupt      []Corrupt `json:"corrupt"`
	CorruptTotal int       `json:"corrupt_total"`
	Cluster      Health    `json:"cluster"`
}

// MaxCorrupt bounds the damages in one answer.
const MaxCorrupt = 100

// API is the handler of all requests.
type API struct {
	http.Handler
	server *server
}

// ProduceRoute is the route of requests that append records.
const ProduceRoute = "POST /v1/topics/{topic}/produce"

// Produce returns the handler of ProduceRoute alone, for whoever has found out
// already that a request is one of those.
func (h *API) Produce() http.Handler { return h.server.serve((*server).produce) }

// New returns the handler.
func New(b Broker, services Services) *API {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-b.Ready():
			_, _ = w.Write([]byte("ok\n"))
		default:
			http.Error(w, "not ready: the broker is starting", http.StatusServiceUnavailable)
		}
	})
	s := newServer(b, services)
	for _, row := range routes() {
		mux.Handle(row.method+" "+row.path, s.serve(row.handle))
	}
	mux.Handle("/", s.serve(s.nothingHere(mux)))
	return &API{mux, s}
}

func (s *server) doctor(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	d := Doctor{Unreached: []Unreached{}, Corrupt: []Corrupt{}, Cluster: s.broker.Health()}
	corrupt := s.broker.Corrupt()
	d.CorruptTotal = len(corrupt)
	d.Corrupt = append(d.Corrupt, corrupt[:min(len(corrupt), MaxCorrupt)]...)
	for _, f := range s.broker.Unreached() {
		d.Unreached = append(d.Unreached, Unreached{f.Client.Host, f.Client.ID, f.Advertised, f.Since, f.Asked})
	}
	answer(w, http.StatusOK, d)
	return nil
}

// Debug returns the handler of the debug listener: pprof.
func Debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
