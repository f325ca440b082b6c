package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/strandline/strandline/internal/kafka"
)

// sessionsPath is where the Sessions of brokers ask one another.
const sessionsPath = "/internal/sessions"

// maxQuestionBytes bounds what a broker asks another one.
const maxQuestionBytes = 16 << 20

// Inside returns the handler of what other brokers ask: all that clients may, and
// what is between brokers alone. It is for connections on which only brokers are.
func (h *API) Inside() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h.Handler)
	for path, answer := range map[string]func(context.Context, []byte) ([]byte, error){
		keysPath:      h.server.answerKeys,
		sequencesPath: h.server.answerSequences,
		sessionsPath:  h.server.Sessions.Serve,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { h.server.answerInside(w, r, answer) })
	}
	return mux
}

// answerInside answers a question of another broker. What limits the requests of
// clients has limited the one that it serves.
func (s *server) answerInside(
	w http.ResponseWriter, r *http.Request, answer func(context.Context, []byte) ([]byte, error),
) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxQuestionBytes))
	if err == nil {
		body, err = answer(r.Context(), body)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	extendWrite(w)
	w.Header().Set("Content-Type", typeRaw)
	_, _ = w.Write(body) // A broker that went away needs no answer.
}

// askInside asks another broker what is between brokers alone.
func (s *server) askInside(ctx context.Context, to kafka.BrokerID, path string, question []byte) ([]byte, error) {
	return s.exchange(ctx, to, &http.Request{
		Method: http.MethodPost, RequestURI: path, Host: "broker", Header: http.Header{"Content-Type": {typeRaw}},
	}, question)
}

// exchange sends another broker a request of this one's own and returns what it answers.
func (s *server) exchange(ctx context.Context, to kafka.BrokerID, r *http.Request, body []byte) ([]byte, error) {
	resp, err := s.Forward.Send(ctx, to, r, body)
	if err != nil {
		return nil, sendFailed(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, readProblem(resp)
	}
	b, err := readAnswer(resp)
	if err != nil {
		return nil, fmt.Errorf("read the answer of broker %d: %w", to, err)
	}
	return b, nil
}

// AskSessions is the way of this broker's Sessions to those of others.
func AskSessions(f Forward) func(ctx context.Context, to kafka.BrokerID, question []byte) ([]byte, error) {
	s := &server{Services: Services{Forward: f}}
	return func(ctx context.Context, to kafka.BrokerID, question []byte) ([]byte, error) {
		return s.askInside(ctx, to, sessionsPath, question)
	}
}
