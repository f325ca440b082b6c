// Package durability names three contracts between a topic and those who write to it,
// so that they can be chosen and seen by a word instead of by four settings:
//
//	strict    acks=all is answered when two of three replicas have it on their disks
//	balanced  acks=all is answered when two of three replicas have it in memory
//	relaxed   acks=1 telemetry: the leader has it, and a crash may cost the newest
//
// A contract is nothing that is stored: Of derives it from a topic's settings, and Of
// of what Settings returns is the contract again. What fits none is Custom.
//
// It is pure, and stands below both protocols because both create and describe topics.
package durability

import (
	"fmt"
	"strconv"
)

// Contract is what a topic promises.
type Contract string

// The contracts.
const (
	Strict   Contract = "strict"
	Balanced Contract = "balanced"
	Relaxed  Contract = "relaxed"
	// Custom is what fits none of the others.
	Custom Contract = "custom"
)

// Names returns the contracts that can be chosen.
func Names() []string { return []string{string(Strict), string(Balanced), string(Relaxed)} }

// The settings that contracts consist of.
const (
	minInsyncReplicas = "min.insync.replicas"
	flushMessages     = "flush.messages"
	uncleanElection   = "unclean.leader.election.enable"
	// never is the value of flush.messages that leaves syncing to the system, which
	// is Kafka's own.
	never = "9223372036854775807"
)

// Facts are what decides on a topic's contract.
type Facts struct {
	ReplicationFactor int // Of the partition that has the fewest.
	MinInsyncReplicas int
	FlushMessages     int64
	UncleanElection   bool
}

// FactsOf reads the facts from a topic's settings; value returns what a setting is,
// wherever it was set.
func FactsOf(replicationFactor int, value func(name string) string) Facts {
	f := Facts{ReplicationFactor: replicationFactor, UncleanElection: value(uncleanElection) == "true"}
	// What is no number is 0, which fits no contract.
	f.MinInsyncReplicas, _ = strconv.Atoi(value(minInsyncReplicas))
	f.FlushMessages, _ = strconv.ParseInt(value(flushMessages), 10, 64)
	return f
}

// replicas is what strict and balanced are about: three copies, two of which a record
// must have.
const (
	replicas    = 3
	mustHave    = 2
	relaxedWith = 2
)

// Of returns the contract that a topic keeps.
func Of(f Facts) Contract {
	safe := f.ReplicationFactor >= replicas && f.MinInsyncReplicas >= mustHave &&
		f.MinInsyncReplicas < f.ReplicationFactor && !f.UncleanElection
	switch {
	case safe && f.FlushMessages == 1:
		return Strict
	case safe && f.FlushMessages > 1:
		return Balanced
	case f.MinInsyncReplicas == 1 && f.FlushMessages > 1:
		return Relaxed
	}
	return Custom
}

// TooFewError says that a contract can't be kept with so few replicas.
type TooFewError struct {
	Contract Contract
	// Want is how many replicas it needs, and Have how many there can be: brokers, if
	// Asked is false, else what was asked for.
	Want, Have int
	Asked      bool
}

// Error implements error.
func (e *TooFewError) Error() string {
	if e.Asked {
		return fmt.Sprintf("durability %s keeps three replicas or more, and replication factor %d was asked for: "+
			"ask for %d, or for none", e.Contract, e.Have, e.Want)
	}
	brokers := "there are " + strconv.Itoa(e.Have)
	if e.Have == 1 {
		brokers = "there is one"
	}
	return fmt.Sprintf("durability %s keeps three replicas on three brokers, and %s: start more, or choose %s",
		e.Contract, brokers, Relaxed)
}

// UnknownError is a word that names no contract.
type UnknownError struct{ Word string }

// Error implements error.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("durability %q: want strict, balanced or relaxed", e.Word)
}

// Choice is what a new topic needs for a contract.
type Choice struct {
	ReplicationFactor int
	Settings          map[string]string
}

// Choose returns what a contract needs where there are so many brokers; asked is the
// replication factor that the creator wants, 0 for none.
func Choose(word string, brokers, asked int) (Choice, error) {
	c := Contract(word)
	switch c {
	case Strict, Balanced:
		if asked != 0 && asked < replicas {
			return Choice{}, &TooFewError{c, replicas, asked, true}
		}
		if brokers < replicas {
			return Choice{}, &TooFewError{c, replicas, brokers, false}
		}
	case Relaxed:
	default:
		return Choice{}, &UnknownError{word}
	}
	choice := Choice{replicas, map[string]string{
		minInsyncReplicas: strconv.Itoa(mustHave), flushMessages: "1", uncleanElection: "false",
	}}
	if c != Strict {
		choice.Settings[flushMessages] = never
	}
	if c == Relaxed {
		choice.ReplicationFactor = min(relaxedWith, max(brokers, 1))
		choice.Settings[minInsyncReplicas] = "1"
	}
	if asked != 0 {
		choice.ReplicationFactor = asked
	}
	return choice, nil
}

// Explain says in a sentence what a topic promises, and what producers have to do for
// it.
func Explain(f Facts) string {
	switch Of(f) {
	case Strict:
		return fmt.Sprintf("with acks=all a record is answered when all replicas in sync, %d of %d at least, have it "+
			"on their disks: it survives the loss of any %s, and of power everywhere", f.MinInsyncReplicas,
			f.ReplicationFactor, brokers(f.MinInsyncReplicas-1))
	case Balanced:
		return fmt.Sprintf("with acks=all a record is answered when all replicas in sync, %d of %d at least, have it in "+
			"memory: it survives the loss of any %s, but not of power everywhere at once", f.MinInsyncReplicas,
			f.ReplicationFactor, brokers(f.MinInsyncReplicas-1))
	case Relaxed:
		return "meant for acks=1: a record is answered when its leader has it in memory, and the newest are lost when " +
			"that broker fails"
	}
	where := "on disk"
	if f.FlushMessages > 1 {
		where = "in memory"
	}
	text := fmt.Sprintf("%d of %d in sync must have a record for acks=all, %s", f.MinInsyncReplicas, f.ReplicationFactor, where)
	switch {
	case f.MinInsyncReplicas > f.ReplicationFactor:
		text = fmt.Sprintf("acks=all is always refused: min.insync.replicas is %d, and there are no more replicas than %d",
			f.MinInsyncReplicas, f.ReplicationFactor)
	case f.ReplicationFactor == 1:
		text = "one replica: acks=all is answered when its broker has a record " + where + ", and with that broker's disk " +
			"all is lost"
	}
	if f.UncleanElection {
		text += "; a replica that lacks records may lead (unclean.leader.election.enable)"
	}
	return text
}

func brokers(n int) string {
	if n == 1 {
		return "one broker"
	}
	return fmt.Sprintf("%d brokers", n)
}
