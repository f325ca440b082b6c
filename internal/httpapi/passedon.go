package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// passedOn is another broker's refusal, which is told to the client as it is.
type passedOn struct {
	status  int
	problem Problem
	// undone says that nothing of the request was done, and that it may succeed
	// elsewhere.
	undone bool
}

// Error implements error.
func (e *passedOn) Error() string { return e.problem.Code + ": " + e.problem.Message }

// insideProblem is a Problem as brokers tell one another.
type insideProblem struct {
	Problem
	Undone bool `json:"undone,omitempty"`
}

// insideBody is the body of a refusal as brokers tell one another.
type insideBody struct {
	Error insideProblem `json:"error"`
}

// maxAnswerBytes bounds what is read of another broker's answer into memory.
const maxAnswerBytes = 64 << 20

// readAnswer reads an answer whole, and closes it.
func readAnswer(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(b) > maxAnswerBytes {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswerBytes)
	}
	return b, err
}

// readProblem reads a refusal.
func readProblem(resp *http.Response) error {
	b, err := readAnswer(resp)
	if err != nil {
		return &lostError{err}
	}
	var body insideBody
	if err := json.Unmarshal(b, &body); err != nil || body.Error.Code == "" {
		return &lostError{fmt.Errorf("a broker answers %s with %q", resp.Status, clip(string(b)))}
	}
	return &passedOn{
		status: resp.StatusCode, problem: body.Error.Problem,
		undone: body.Error.Undone || resp.Header.Get(undoneField) != "",
	}
}
