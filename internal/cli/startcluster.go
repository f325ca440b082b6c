package cli

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// Voter is a broker that elects the controller of a cluster.
type Voter struct {
	NodeID  int32
	Address string // Of its cluster listener.
}

// defaultCluster is where a broker of a cluster listens for the others.
const defaultCluster = "127.0.0.1:9093"

// joinCluster turns --cluster-listen and --voters into what a broker takes.
func (s *startFlags) joinCluster() error {
	var voters []Voter
	for _, text := range s.voters {
		v, err := parseVoter(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(voters, func(other Voter) bool { return other.NodeID == v.NodeID }) {
			return usagef("--voters names broker %d twice", v.NodeID).hint("%s", votersHint)
		}
		if i := slices.IndexFunc(voters, func(other Voter) bool { return other.Address == v.Address }); i >= 0 {
			return usagef("--voters gives the brokers %d and %d the same address, %s", voters[i].NodeID, v.NodeID, v.Address).
				hint("%s", votersHint)
		}
		voters = append(voters, v)
	}
	self := slices.IndexFunc(voters, func(v Voter) bool { return v.NodeID == s.broker.NodeID })
	alone := len(voters) == 0 || len(voters) == 1 && self == 0
	if s.cluster == "" && alone {
		return nil
	}
	if len(voters) == 2 && self >= 0 { // Who joins may name any that are there.
		return usagef("--voters names two brokers: with either of them lost, none could decide").
			hint("Name one, three or five. %s", votersHint)
	}
	s.broker.Voters, s.broker.ClusterListen = voters, s.cluster
	if s.cluster == "" {
		s.broker.ClusterListen = defaultCluster
	}
	host, port, err := net.SplitHostPort(s.broker.ClusterListen)
	if err != nil {
		return usagef("--cluster-listen %s: want HOST:PORT", s.broker.ClusterListen)
	}
	switch {
	case self >= 0 && isOwn(s.cluster, voters[self].Address):
		s.broker.ClusterAdvertise = s.cluster
	case self >= 0:
		s.broker.ClusterAdvertise = voters[self].Address
	case isEverywhere(host):
		told, _, err := net.SplitHostPort(s.broker.Advertise)
		if err != nil {
			told = s.broker.Advertise
		}
		if told == "" {
			return usagef("--cluster-listen %s is every address of this machine, which does not say where the other "+
				"brokers are to connect to", s.broker.ClusterListen).hint("Give one address, or say --advertise HOST.")
		}
		s.broker.ClusterAdvertise = net.JoinHostPort(told, port)
	}
	return nil
}

// isOwn reports whether a broker listens on another port of the very host that its list of
// voters gives for it: the list is of before it moved. Where the hosts differ one may be
// the other's name, or a way to it.
func isOwn(listens, told string) bool {
	host, port, err := net.SplitHostPort(listens)
	toldHost, toldPort, err2 := net.SplitHostPort(told)
	return err == nil && err2 == nil && host == toldHost && port != toldPort && port != "0" && !isEverywhere(host)
}

const votersHint = "The same list on each of them: --voters 1@HOST:PORT,2@HOST:PORT,3@HOST:PORT"

func parseVoter(text string) (Voter, error) {
	id, address, ok := strings.Cut(text, "@")
	node, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || node < 1 {
		return Voter{}, usagef("--voters %s: want ID@HOST:PORT", text).hint("%s", votersHint)
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return Voter{}, usagef("--voters %s: want ID@HOST:PORT", text).hint("%s", votersHint)
	}
	return Voter{NodeID: int32(node), Address: address}, nil
}
