package refusal_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
)

// errorCodes lists every error that other rooms export, with what a client is
// told.
func errorCodes() map[string]struct {
	err  error
	code kafka.Code
} {
	type row = struct {
		err  error
		code kafka.Code
	}
	return map[string]row{
		"kafka.Error":                           {&kafka.Error{Code: kafka.ErrPolicyViolation}, kafka.ErrPolicyViolation},
		"partition.ErrNotLeader":                {partition.ErrNotLeader, kafka.ErrNotLeaderOrFollower},
		"partition.ErrNotFollower":              {partition.ErrNotFollower, kafka.ErrNotLeaderOrFollower},
		"partition.ErrNotSettled":               {partition.ErrNotSettled, kafka.ErrOffsetNotAvailable},
		"partition.ErrNotYet":                   {partition.ErrNotYet, kafka.ErrOffsetNotAvailable},
		"isr.ErrNotReplica":                     {isr.ErrNotReplica, kafka.ErrUnknownLeaderEpoch},
		"isr.ErrStaleFetch":                     {isr.ErrStaleFetch, kafka.ErrNotLeaderOrFollower},
		"partition.ErrDeleted":                  {partition.ErrDeleted, kafka.ErrUnknownTopicOrPartition},
		"partition.FencedEpochError":            {&partition.FencedEpochError{}, kafka.ErrFencedLeaderEpoch},
		"partition.UnknownEpochError":           {&partition.UnknownEpochError{}, kafka.ErrUnknownLeaderEpoch},
		"partition.NotEnoughReplicasError":      {&partition.NotEnoughReplicasError{}, kafka.ErrNotEnoughReplicas},
		"commitlog.ErrOffline":                  {commitlog.ErrOffline, kafka.ErrKafkaStorageError},
		"commitlog.ErrFrozen":                   {fmt.Errorf("no appends: %w: %w", commitlog.ErrFrozen, &commitlog.CorruptionError{}), kafka.ErrKafkaStorageError},
		"commitlog.ErrDeleted":                  {commitlog.ErrDeleted, kafka.ErrUnknownTopicOrPartition},
		"commitlog.ErrTruncating":               {commitlog.ErrTruncating, kafka.ErrNotLeaderOrFollower},
		"commitlog.ErrBusy":                     {commitlog.ErrBusy, kafka.ErrKafkaStorageError},
		"commitlog.OffsetOutOfRangeError":       {&commitlog.OffsetOutOfRangeError{}, kafka.ErrOffsetOutOfRange},
		"commitlog.CorruptionError":             {&commitlog.CorruptionError{}, kafka.ErrCorruptMessage},
		"commitlog.BatchTooLargeError":          {&commitlog.BatchTooLargeError{}, kafka.ErrRecordListTooLarge},
		"commitlog.UnexpectedOffsetError":       {&commitlog.UnexpectedOffsetError{}, kafka.ErrNotLeaderOrFollower},
		"commitlog.NewerFormatError":            {&commitlog.NewerFormatError{}, kafka.ErrKafkaStorageError},
		"producerstate.OutOfOrderSequenceError": {&producerstate.OutOfOrderSequenceError{}, kafka.ErrOutOfOrderSequenceNumber},
		"producerstate.InvalidEpochError":       {&producerstate.InvalidEpochError{}, kafka.ErrInvalidProducerEpoch},
		"producerstate.UnknownProducerError":    {&producerstate.UnknownProducerError{}, kafka.ErrUnknownProducerID},
		"producerstate.CoordinatorFencedError":  {&producerstate.CoordinatorFencedError{}, kafka.ErrTransactionCoordinatorFenced},
		"producerstate.TransactionStateError":   {&producerstate.TransactionStateError{}, kafka.ErrInvalidTxnState},
		"producerstate.SnapshotError":           {&producerstate.SnapshotError{}, kafka.ErrKafkaStorageError},
		"record.InvalidError":                   {&record.InvalidError{Reason: record.ReasonTooLarge}, kafka.ErrMessageTooLarge},
		"record.ErrShort":                       {record.ErrShort, kafka.ErrCorruptMessage},
		"record.ErrTooLarge":                    {record.ErrTooLarge, kafka.ErrMessageTooLarge},
		"quorum.NotLeaderError":                 {&quorum.NotLeaderError{Leader: 2}, kafka.ErrNotController},
		"quorum.MemberError":                    {&quorum.MemberError{Problem: quorum.NotMember}, kafka.ErrVoterNotFound},
		"quorum.StrangerError":                  {&quorum.StrangerError{}, kafka.ErrInvalidVoterKey},
		"quorum.TwinError":                      {&quorum.TwinError{}, kafka.ErrDuplicateBrokerRegistration},
		"quorum.ErrStopped":                     {quorum.ErrStopped, kafka.ErrNotController},
		"quorum.ErrEntryTooLarge":               {quorum.ErrEntryTooLarge, kafka.ErrInvalidRequest},
		"quorum.CorruptionError":                {&quorum.CorruptionError{}, kafka.ErrKafkaStorageError},
		"quorum.VersionError":                   {&quorum.VersionError{}, kafka.ErrKafkaStorageError},
		"metadata.ReplayError":                  {&metadata.ReplayError{}, kafka.ErrKafkaStorageError},
		"metadata.FormatError":                  {&metadata.FormatError{}, kafka.ErrKafkaStorageError},
		"config.ValueError":                     {&config.ValueError{}, kafka.ErrInvalidConfig},
		"coordinator.ErrInDoubt":                {coordinator.ErrInDoubt, kafka.ErrCoordinatorNotAvailable},
		"group.DecodeError":                     {&group.DecodeError{}, kafka.ErrKafkaStorageError},
		"group.ErrUnknownRecord":                {group.ErrUnknownRecord, kafka.ErrKafkaStorageError},
	}
}

// neverSeen lists errors that cannot reach a client, with the reason.
func neverSeen() map[string]string {
	return map[string]string{
		"commitlog.BrokenError":    "it ends the broker",
		"commitlog.UnfitError":     "whoever mends a replica meets it, and has its log filled anew",
		"journal.ErrClosed":        "a log wraps it in commitlog.ErrOffline",
		"journal.CorruptionError":  "found by a start only",
		"journal.VersionError":     "found by a start only",
		"vfs.ErrLocked":            "found by a start only",
		"cleaner.TooManyKeysError": "compaction's own",
		"partition.ErrDamaged":     "what follows a leader meets it, and puts the replica aside",
	}
}

// TestEveryErrorHasACode: every exported error of the rooms below has a code that
// a client can act on, also wrapped, and none is UNKNOWN_SERVER_ERROR.
func TestEveryErrorHasACode(t *testing.T) {
	codes, never := errorCodes(), neverSeen()
	for name, c := range codes {
		for _, err := range []error{c.err, fmt.Errorf("create topics: %w", c.err)} {
			if got := refusal.CodeOf(err); got != c.code || got == kafka.ErrUnknownServerError {
				t.Errorf("%s: %s, want %s", name, got, c.code)
			}
		}
	}
	found := 0
	for _, room := range []string{
		"kafka", "partition", "commitlog", "journal", "producerstate", "record", "quorum", "metadata", "config",
		"group", "coordinator", "controlplane", "controller", "isr", "vfs", "cleaner",
	} {
		for _, name := range exportedErrors(t, room) {
			found++
			if _, ok := codes[name]; !ok && never[name] == "" {
				t.Errorf("%s has no code: a client would be told UNKNOWN_SERVER_ERROR", name)
			}
		}
	}
	if found < len(codes) {
		t.Errorf("%d exported errors found, %d listed", found, len(codes))
	}
	for _, c := range []struct {
		err  error
		code kafka.Code
	}{
		{nil, kafka.ErrNone},
		{context.DeadlineExceeded, kafka.ErrRequestTimedOut},
		{context.Canceled, kafka.ErrNotLeaderOrFollower},
		{&os.PathError{Op: "write", Err: syscall.ENOSPC}, kafka.ErrKafkaStorageError},
		{&partition.NotEnoughReplicasError{Appended: true}, kafka.ErrNotEnoughReplicasAfterAppend},
		{syscall.EIO, kafka.ErrKafkaStorageError},
		{errors.New("a surprise"), kafka.ErrUnknownServerError},
	} {
		if got := refusal.CodeOf(c.err); got != c.code {
			t.Errorf("%v: %s, want %s", c.err, got, c.code)
		}
	}
}

// exportedErrors reads a room's sources for types with an Error method and for
// variables of errors.
func exportedErrors(t *testing.T, room string) []string {
	t.Helper()
	files, err := filepath.Glob("../" + room + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of %s: %v", room, err)
	}
	var names []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "Error" && d.Recv != nil {
					of := d.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					names = append(names, of.(*ast.Ident).Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR && strings.HasPrefix(v.Names[0].Name, "Err") {
						names = append(names, v.Names[0].Name)
					}
				}
			}
		}
	}
	var exported []string
	for _, n := range names {
		if ast.IsExported(n) {
			exported = append(exported, room+"."+n)
		}
	}
	return exported
}
