package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// triesInTime is how many brokers in turn may leave a command without an answer until its
// time is over; leastPatience and mostPatience bound what one of them has.
const (
	triesInTime   = 5
	leastPatience = time.Second
	mostPatience  = 10 * time.Second
)

// patience is how long one broker may take for an answer, beside what the request itself
// lets it wait. One that hangs, or that is starting, takes connections and says nothing,
// and the others would have answered long before.
func (a *app) patience() time.Duration {
	return min(max(a.flags.timeout/triesInTime, leastPatience), mostPatience)
}

// metadataMinAge is how soon a client may ask again who leads. Another broker does a tenth of
// a second after a failure; by itself the client would not look for five seconds.
const metadataMinAge = 25 * time.Millisecond

// movedWait is the longest that a fetch of a command waits for records: a partition that has
// moved is fetched from its new leader when what is under way there has ended.
const movedWait = 100 * time.Millisecond

// mostRetries is more than come within the time that a command has: time ends it, not how often
// it tried.
const mostRetries = 100

// retryBackoff is how long a client waits before it tries again what has failed for the so
// many-th time: at first no longer than it takes others to lead. The client asks any broker
// who leads, and so, one time in three, the one of three that was lost.
func retryBackoff(failures int) time.Duration {
	const first, most = 25 * time.Millisecond, time.Second
	return min(first<<min(max(failures-1, 0), 10), most)
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// connect returns a client that a broker has answered. The caller closes it.
func (a *app) connect(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(a.flags.brokers...),
		kgo.ClientID("strandline-cli"),
		kgo.SoftwareNameAndVersion("strandline-cli", buildVersion().Version),
		kgo.DialTimeout(min(a.patience(), a.flags.timeout)),
		kgo.RequestTimeoutOverhead(a.patience()),
		kgo.RetryTimeout(a.flags.timeout),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(retryBackoff), kgo.RequestRetries(mostRetries),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(a.dials), kgo.WithLogger(a.clientLogger()),
	}, extra...)
	if a.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(a.tls.Clone()))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, usagef("%w", err)
	}
	limited, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	if err := client.Ping(limited); err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, a.unreachable(err)
	}
	a.answered = true
	a.noteAdvertised(limited, client)
	return client, nil
}

// noteAdvertised asks what brokers advertise. One that does so with the very address that it
// answered at is reached by that, whatever becomes of the others.
func (a *app) noteAdvertised(ctx context.Context, client *kgo.Client) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return // What is asked next fails too, and is explained.
	}
	for _, b := range resp.Brokers {
		if slices.Contains(a.flags.brokers, hostPort(b.Host, b.Port)) {
			a.dials.noteReached()
		}
	}
}

// clientLogger is where the client tells what it does, with --verbose; nil otherwise.
func (a *app) clientLogger() kgo.Logger {
	if !a.flags.verbose {
		return nil
	}
	return kgo.BasicLogger(a.env.Stderr, kgo.LogLevelDebug, nil)
}

// admin runs fn with an administration client, within the time that one command
// may take.
func (a *app) admin(
	ctx context.Context, fn func(ctx context.Context, adm *kadm.Client) error,
) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, a.flags.timeout)
	defer cancel()
	adm := kadm.NewClient(client)
	adm.SetTimeoutMillis(int32(min(a.flags.timeout.Milliseconds(), 1<<31-1)))
	err = fn(limited, adm)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return a.unanswered(err)
	}
	return err
}

// unanswered says that a broker is there, and did not answer in time: it waits for others,
// or is sought where it is not.
func (a *app) unanswered(err error) *failure {
	if a.dials.reachesNone() {
		return a.unreachable(err)
	}
	f := &failure{
		code: exitFailed, cause: err,
		message: fmt.Sprintf("a broker is there, but gave no answer within %v", a.flags.timeout),
	}
	for _, l := range a.dials.advertised() {
		f.hint("%s", l)
	}
	return f.hint("%s", a.controllerAdvice()).
		hint("It may have been done all the same: look before you try again, or give it more time with --timeout.")
}

// controllerAdvice says what to look at where a broker is there, and does not do what was asked.
func (a *app) controllerAdvice() string {
	return fmt.Sprintf("What changes the cluster waits for an active controller, which a majority of the voters elects: "+
		"strandline cluster describe --brokers %s shows who is there.", strings.Join(a.flags.brokers, ","))
}
