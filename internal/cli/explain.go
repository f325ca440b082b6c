package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/certs"
)

// explain turns any error of a command into one that says what to do.
func (a *app) explain(err error) *failure {
	var f *failure
	var protocol *kerr.Error
	var parts *kadm.ShardErrors
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &parts) && len(parts.Errs) > 0: // Of several brokers that were asked.
		return a.explain(fmt.Errorf("%s: %w", parts.Name, parts.Errs[0].Err))
	case errors.Is(err, context.Canceled):
		return &failure{code: exitInterrupted, message: "interrupted", cause: err}
	case errors.As(err, &protocol):
		return (&failure{code: exitFailed, message: err.Error(), cause: err}).forCode(protocol)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return &failure{code: exitFailed, message: err.Error(), cause: err}
	case a.answered && isTimeout(err) && len(a.dials.advertised()) == 0:
		return a.unanswered(err)
	case isNetworkError(err):
		return a.unreachable(err)
	}
	return &failure{code: exitFailed, message: err.Error(), cause: err}
}

// silence says which brokers did not answer where others did, and why the first did not.
func (a *app) silence(err error) string {
	var parts *kadm.ShardErrors
	if !errors.As(err, &parts) || len(parts.Errs) == 0 {
		return a.explain(err).message
	}
	var ids []int32
	var first error
	for _, p := range parts.Errs {
		if p.Broker.NodeID < 0 {
			continue // It leads or holds something, and is not among those that are up.
		}
		ids = append(ids, p.Broker.NodeID)
		first = cmp.Or(first, p.Err)
	}
	if len(ids) == 0 {
		return "a broker is down"
	}
	slices.Sort(ids)
	return fmt.Sprintf("no answer from %s: %s", namedBrokers(ids), dialReason(first))
}

func isNetworkError(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var eof *kgo.ErrFirstReadEOF
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &eof) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// unreachable says why no broker answered.
func (a *app) unreachable(err error) *failure {
	where := strings.Join(a.flags.brokers, ", ")
	f := &failure{code: exitUnreachable, cause: err}
	if lost := a.dials.advertised(); len(lost) > 0 {
		f.message = fmt.Sprintf("a broker answers at %s but not at the address that it advertises", where)
		advice := "Start the broker with --advertise and an address that reaches it from this machine."
		if !a.dials.reachesNone() {
			// Whoever reaches some brokers by what they advertise is mostly right about
			// the others, and those are down.
			f.code, f.message = exitFailed, "brokers that are needed for this cannot be reached"
			advice = "If they are down, start them: others lead soon what has a replica elsewhere, while a majority of the " +
				"voters is up. If they run, they advertise what does not reach them from this machine."
		}
		for _, l := range lost {
			f.hint("%s", l)
		}
		if f.code == exitFailed {
			f.hint("%s", a.controllerAdvice())
		}
		return f.hint("%s", advice).hint("strandline doctor --brokers %s shows every address.", strings.Join(a.flags.brokers, ","))
	}
	reason := a.whatStandsThere(err)
	f.message = fmt.Sprintf("cannot reach a broker at %s: %s", where, reason)
	if strings.HasPrefix(reason, strangerPrefix) {
		return f.hint("%s", adviceForProbe(errors.New(reason)))
	}
	for _, h := range a.dialHints(err) {
		f.hint("%s", h)
	}
	return f
}

// whatStandsThere says why a connection failed. Where something takes
// connections and is no broker, a look at what it says tells what it is.
func (a *app) whatStandsThere(err error) string {
	address := a.flags.brokers[0]
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns), errors.As(err, &op) && !isTimeout(err):
		return dialReason(err)
	case isTimeout(err):
		if speaksHTTP(address) {
			return strangerError("HTTP").Error()
		}
		return dialReason(err)
	}
	if err := a.look(address); err != nil {
		return err.Error()
	}
	return dialReason(err)
}

// dialReason says in a few words why a connection failed.
func dialReason(err error) string {
	var dns *net.DNSError
	var eof *kgo.ErrFirstReadEOF
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("the name %s does not resolve", dns.Name)
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be looked up: %s", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "the connection was reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.As(err, &header):
		return "it does not speak TLS"
	case isTLS(err):
		return certs.Explain(err)
	case errors.As(err, &eof), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection without an answer"
	case isTimeout(err):
		return "no answer in time"
	}
	return err.Error()
}

// isTLS reports whether certificates are what an error is about.
func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || strings.Contains(err.Error(), "remote error: tls: ")
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

func (a *app) dialHints(err error) []string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return []string{"Check the spelling, or use an IP address: --brokers HOST:PORT or " +
			"STRANDLINE_BROKERS."}
	case errors.Is(err, syscall.ECONNREFUSED):
		return []string{
			"Is the broker running? Start one with: strandline start",
			"For a broker elsewhere: --brokers HOST:PORT or STRANDLINE_BROKERS.",
		}
	case isTLS(err):
		return []string{
			"--tls-ca FILE says whom to trust; --tls-cert and --tls-key what to show to a broker that asks for it.",
		}
	case isTimeout(err):
		return []string{
			"A firewall or a wrong address drops packets like this, and so does a broker that hangs.",
			"To wait longer: --timeout 1m. To see what answers: strandline doctor",
		}
	}
	if a.tls != nil {
		return []string{
			"Is it a Kafka listener with TLS? One without answers like this: leave out --tls and the like then.",
			"strandline doctor looks closer.",
		}
	}
	return []string{
		"Is it a Kafka listener without TLS? Another protocol on that port answers like this.",
		"strandline doctor looks closer.",
	}
}

// forCode adds what to do about an error code of the protocol.
func (f *failure) forCode(e *kerr.Error) *failure {
	switch e {
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		return f.hint("strandline topic list shows what is there.")
	case kerr.TopicAlreadyExists:
		return f.hint("Use --if-not-exists to take the one that is there.")
	case kerr.UnknownMemberID, kerr.NonEmptyGroup:
		return f.hint("Stop the members of the group first: strandline group describe GROUP shows them.")
	case kerr.GroupIDNotFound:
		return f.hint("strandline group list shows what is there.")
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		return f.hint("Fewer replicas are in sync than min.insync.replicas asks for: " +
			"bring brokers back, or lower it with strandline topic alter.")
	case kerr.NotController:
		return f.hint("A majority of the voters elects the controller, which decides on all changes: start those that are down.").
			hint("If a majority is lost with its disks: strandline cluster recover --help")
	case kerr.LeaderNotAvailable:
		return f.hint("A partition has no leader: strandline cluster doctor says which, and what to do.")
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		return f.hint("Raise the topic's limit: strandline topic alter TOPIC --config " +
			"max.message.bytes=BYTES")
	case kerr.KafkaStorageError:
		return f.hint("The broker cannot write to its disk: if that is full, freed space is enough for it to " +
			"go on. Its log says more, and so does strandline doctor.")
	case kerr.UnsupportedVersion:
		return f.hint("The broker is too old for this command, or does not offer it.")
	}
	return f
}

// refusal is the failure of a request that the broker refused with an error
// code and, where the protocol has room for one, a message.
func refusal(what string, err error, message string) *failure {
	var protocol *kerr.Error
	f := &failure{code: exitFailed, cause: err}
	if !errors.As(err, &protocol) {
		f.message = what + ": " + err.Error()
		return f
	}
	reason := protocol.Description
	if message != "" {
		reason = message
	}
	f.message = fmt.Sprintf("%s: %s (%s)", what, strings.TrimSuffix(reason, "."), protocol.Message)
	return f.forCode(protocol)
}
