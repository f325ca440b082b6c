package broker

import (
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

// settled brings addresses and the data directory, which are flags, together
// with Kafka's settings of the same meaning: a setting wins over the flag's
// default, and DescribeConfigs shows what is in force.
func (c Config) settled() (Config, error) {
	s := maps.Clone(c.Settings)
	if s == nil {
		s = map[string]string{}
	}
	s["node.id"] = strconv.Itoa(int(c.NodeID))
	if c.Rack != "" {
		s["broker.rack"] = c.Rack
	}
	c.Rack = s["broker.rack"]
	if dir, ok := s["log.dirs"]; ok && dir != c.DataDir {
		return c, fmt.Errorf("log.dirs is %q and the data directory is %q: set the one with --data-dir "+
			"and leave log.dirs out", dir, c.DataDir)
	}
	if c.DataDir != "" {
		s["log.dirs"] = c.DataDir
	}
	for name, address := range map[string]*string{"listeners": &c.Listen, "advertised.listeners": &c.Advertise} {
		text, ok := s[name]
		if !ok {
			continue
		}
		all, err := config.ParseListeners(config.SplitList(text))
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		if len(all) != 1 || all[0].Name != c.listenerName() {
			return c, fmt.Errorf("%s is %q: this broker has one listener, %s://HOST:PORT (%s:// with --tls-cert, "+
				"%s:// without)", name, text, c.listenerName(), tlsName, plaintextName)
		}
		*address = net.JoinHostPort(all[0].Host, strconv.Itoa(int(all[0].Port)))
	}
	s["listeners"] = c.listenerName() + "://" + c.Listen
	c.Settings = s
	return c, nil
}

// newUUID draws a random (version 4) UUID.
func newUUID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // Never fails: see its documentation.
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// newID draws an id whose text form does not look like a flag.
func newID() kafka.TopicID {
	for {
		if id := kafka.TopicID(newUUID()); id.String()[0] != '-' {
			return id
		}
	}
}

// logConfig is what a topic's configuration means for its logs.
func logConfig(b *config.Broker, t *config.Topic) commitlog.Config {
	segmentMs := t.SegmentMs
	if t.CleanupCompact { // The active segment is never compacted: it must not be older.
		segmentMs = min(segmentMs, t.MaxCompactionLagMs)
	}
	return commitlog.Config{
		SegmentBytes: int64(t.SegmentBytes), SegmentMs: segmentMs,
		IndexIntervalBytes: int64(t.IndexIntervalBytes), IndexMaxBytes: int64(t.SegmentIndexBytes),
		RetentionMs: t.RetentionMs, RetentionBytes: t.RetentionBytes,
		MaxMessageBytes:      int(t.MaxMessageBytes),
		MaxDecompressedBytes: int64(t.MaxDecompressedMessageBytes),
		FlushMessages:        t.FlushMessages, FlushMs: t.FlushMs,
		LogAppendTime: t.LogAppendTime(), Delete: t.CleanupDelete, Compact: t.CleanupCompact,
		DeleteRetentionMs: t.DeleteRetentionMs, MinCompactionLagMs: t.MinCompactionLagMs,
		MaxCompactionLagMs: t.MaxCompactionLagMs, MinCleanableDirtyRatio: t.MinCleanableDirtyRatio,
		ProducerExpirationMs: b.ProducerIDExpiration.Milliseconds(),
	}
}

// configure returns what a topic's configuration means for its partitions.
func (b *Broker) configure(t *metadata.Topic) (commitlog.Config, partition.Settings) {
	broker := b.settings()
	topic := config.ResolveTopic(broker, t.Config)
	return logConfig(broker, topic), partition.Settings{
		MinInSync: int(topic.MinInsyncReplicas), MaxLag: broker.ReplicaLagTimeMax,
		LeaderThrottled:   throttledReplicas(topic.LeaderThrottledReplicas),
		FollowerThrottled: throttledReplicas(topic.FollowerThrottledReplicas),
	}
}

// throttledReplicas reads a list of partition:broker, or *, which was checked.
func throttledReplicas(items []string) (r partition.ThrottledReplicas) {
	for _, item := range items {
		if item == "*" {
			r.All = true
			continue
		}
		number, broker, _ := strings.Cut(item, ":")
		i, err := strconv.ParseInt(number, 10, 32)
		id, err2 := strconv.ParseInt(broker, 10, 32)
		if err == nil && err2 == nil {
			r.Some = append(r.Some, partition.ThrottledReplica{Partition: int32(i), Broker: kafka.BrokerID(id)})
		}
	}
	return r
}

// groupSettings are the broker's settings for groups.
func groupSettings(b *config.Broker) group.Settings {
	s := group.DefaultSettings()
	s.MinSessionTimeout, s.MaxSessionTimeout = b.GroupMinSessionTimeout, b.GroupMaxSessionTimeout
	s.MaxSize = int(b.GroupMaxSize)
	s.InitialRebalanceDelay = b.GroupInitialRebalanceDelay
	s.OffsetMetadataMax = int(b.OffsetMetadataMaxBytes)
	s.OffsetsRetention, s.RetentionCheck = b.OffsetsRetention, b.OffsetsRetentionCheck
	return s
}

// divided are the broker's settings for connections: those of clients, and those of
// other brokers, which share the memory where there are any.
func divided(b *config.Broker, clustered bool) (clients, brokers wire.Limits) {
	clients, brokers = limits(b), limits(b)
	brokers.MaxRequestBytes = max(brokers.MaxRequestBytes, clusterRequestBytes)
	if clustered {
		clients.MaxQueuedBytes, brokers.MaxQueuedBytes = config.Divide(b.QueuedMaxRequestBytes)
		clients.MaxAnswerBytes, brokers.MaxAnswerBytes = config.Divide(b.QueuedMaxResponseBytes)
	}
	return clients, brokers
}

// limits are the broker's settings for connections.
func limits(b *config.Broker) wire.Limits {
	l := wire.DefaultLimits()
	l.MaxRequestBytes = int(b.SocketRequestMaxBytes)
	l.MaxQueuedBytes, l.MaxAnswerBytes = b.QueuedMaxRequestBytes, b.QueuedMaxResponseBytes
	l.MaxConnections = min(int(b.MaxConnections), l.MaxConnections)
	l.MaxConnectionsPerIP = min(int(b.MaxConnectionsPerIP), l.MaxConnectionsPerIP)
	if b.ConnectionsMaxIdle > 0 {
		l.MaxIdle = b.ConnectionsMaxIdle
	} else {
		l.MaxIdle = time.Duration(math.MaxInt64)
	}
	return l
}

// advertised returns the host and port that clients are told, from what was
// configured and the address listened on.
func advertised(configured, listening string) (string, int32, error) {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", listening, err)
	}
	if configured != "" {
		if h, p, err := net.SplitHostPort(configured); err == nil {
			host, port = h, p
		} else { // A host alone keeps the port.
			host = strings.TrimSuffix(strings.TrimPrefix(configured, "["), "]")
		}
		if _, err := netip.ParseAddr(host); err != nil && strings.ContainsAny(host, ":/[]@ \t") {
			return "", 0, fmt.Errorf("advertised address %q: want HOST or HOST:PORT, where HOST is a name or an IP address",
				configured)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return "", 0, fmt.Errorf("advertised address %q is every address of a machine: no client can connect "+
				"to that; name one that clients use with --advertise HOST[:PORT]", configured)
		}
	} else if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "", 0, fmt.Errorf("listening on every address (%s) does not say which one clients are to use: "+
			"name it with --advertise HOST[:PORT]", listening)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("advertised address %q: want HOST or HOST:PORT", configured)
	}
	return host, int32(n), nil
}
