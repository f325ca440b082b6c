package controlplane

import (
	"context"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Registration is what a broker tells the cluster when it starts.
type Registration struct {
	// ClusterID is the cluster that the data directory belongs to; "" for one that
	// belongs to none yet.
	ClusterID string
	Endpoints []metadata.Endpoint
	Rack      string
	Directory [16]byte // The id of the data directory.
	// Clean says that the last process on this data directory closed it, so that
	// its logs end where it said. Otherwise what the broker leads gets new leader
	// epochs.
	Clean bool
}

// Boot founds the cluster where there is none, registers this broker, and shows
// those who watch what there is. The quorum must be ready. It returns the cluster's
// id. It is for a node that is alone; one with others joins, see Lifecycle.
func (c *ControlPlane) Boot(ctx context.Context, r Registration) (string, error) {
	founding := r.ClusterID
	if founding == "" {
		founding = kafka.TopicID(c.uuid()).String()
	}
	incarnation := c.uuid()
	clusterID, _, err := decide(ctx, c, "found the cluster", founding, found)
	if err != nil {
		return "", err
	}
	if err := r.checkCluster(clusterID); err != nil {
		return "", err
	}
	resp, _, err := decide(ctx, c, "register the broker", r,
		func(s *controller.State, r Registration) (*kmsg.BrokerRegistrationResponse, []metadata.Record) {
			return s.RegisterBroker(c.registration(s.Image(), clusterID, incarnation, r))
		})
	if err != nil {
		return "", err
	}
	if err := c.mayJoin(resp, clusterID, r); err != nil {
		return "", err
	}
	_, _, err = decide(ctx, c, "show the metadata", struct{}{},
		func(*controller.State, struct{}) (struct{}, []metadata.Record) {
			c.watch()
			return struct{}{}, nil
		})
	return clusterID, err
}

// found is a decision.
func found(s *controller.State, clusterID string) (string, []metadata.Record) {
	return s.FoundCluster(clusterID)
}

// checkCluster compares the cluster that the data directory belongs to with the one
// that there is.
func (r *Registration) checkCluster(clusterID string) error {
	if r.ClusterID != "" && r.ClusterID != clusterID {
		return fmt.Errorf("the data directory belongs to cluster %s (meta.properties), and its metadata is of "+
			"cluster %s: they were not made together; restore the one or the other",
			r.ClusterID, clusterID)
	}
	return nil
}

// mayJoin says why a broker is not registered.
func (c *ControlPlane) mayJoin(
	resp *kmsg.BrokerRegistrationResponse, clusterID string, r Registration,
) error {
	switch code := kafka.Code(resp.ErrorCode); code {
	case kafka.ErrNone:
		return nil
	case kafka.ErrUnsupportedVersion:
		return &kafka.Error{Code: code, Message: fmt.Sprintf("cluster %s uses a newer level of the "+
			"metadata than this version of broker %d knows: run the version of the others",
			clusterID, c.controller.Self)}
	default:
		return &kafka.Error{Code: code, Message: fmt.Sprintf(
			"broker %d may not join cluster %s with the addresses %v",
			c.controller.Self, clusterID, r.Endpoints)}
	}
}

func (c *ControlPlane) registration(
	image *metadata.Image, clusterID string, incarnation [16]byte, r Registration,
) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.ClusterID = int32(c.controller.Self), clusterID
	req.IncarnationID, req.LogDirs = incarnation, [][16]byte{r.Directory}
	if r.Rack != "" {
		req.Rack = &r.Rack
	}
	for _, e := range r.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, uint16(e.Port)
		req.Listeners = append(req.Listeners, l)
	}
	req.PreviousBrokerEpoch = -1
	f := kmsg.NewBrokerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = controller.LevelFeature, 1, metadata.CurrentLevel
	req.Features = append(req.Features, f)
	if b, known := image.Broker(c.controller.Self); known && r.Clean {
		req.PreviousBrokerEpoch = int64(b.Epoch)
	}
	return req
}

// uuid draws a version 4 UUID. Like Kafka's, its text never begins with a dash,
// which command lines would take for an option.
func (c *ControlPlane) uuid() (id [16]byte) {
	for {
		if _, err := io.ReadFull(c.random, id[:]); err != nil {
			panic(fmt.Sprintf("controlplane: no random numbers: %v", err))
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if kafka.TopicID(id).String()[0] != '-' {
			return id
		}
	}
}

func (c *ControlPlane) newTopicID() kafka.TopicID { return c.uuid() }
