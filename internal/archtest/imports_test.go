package archtest_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// everything stands for a room that may import any other below it.
const everything = "*"

// mayImport is the table of rooms: which of our packages the product code of
// each may import. Imports point downwards only. A new package gets a row here
// and one in the code map of docs/ARCHITECTURE.md.
func mayImport() map[string][]string {
	in := func(rooms ...string) []string {
		for i, r := range rooms {
			rooms[i] = "internal/" + r
		}
		return rooms
	}
	return map[string][]string{
		"cmd/strandline": append(in("cli"), "."),
		"strandlinetest": append(in("broker", "kafka", "logtest", "metadata", "netx", "vfs", "vfs/errorfs", "vfs/memfs", "vfs/osfs"), "."),
		".":              in("broker", "certs", "config", "kafka", "netx", "vfs", "vfs/memfs", "vfs/osfs"),

		"internal/cli": in("certs", "commitlog", "config", "durability", "group", "kafka", "metadata", "moves",
			"nearest", "quorum", "record", "vfs", "vfs/osfs"),
		"internal/broker": {everything},

		"internal/metrics": in("api", "cleaner", "commitlog", "config", "coordinator/groups", "group", "journal", "kafka",
			"keyring", "metadata", "netx", "partition", "quorum", "relay", "session", "tally", "txn", "wire"),
		"internal/express":         in(),
		"internal/wire":            in("certs", "kafka", "netx", "tally", "vfs"),
		"internal/tally":           nil,
		"internal/peer":            in("certs", "kafka", "netx", "quorum", "wire"),
		"internal/relay":           in("kafka", "netx"),
		"internal/netx":            nil,
		"internal/certs":           nil,
		"internal/certs/certstest": in("certs"),
		"internal/reach":           nil,
		"internal/api": in("auth", "commitlog", "config", "controller", "controlplane", "coordinator",
			"coordinator/groups", "coordinator/shard", "coordinator/transactions", "group", "isr", "kafka", "metadata", "partition",
			"producerstate", "quorum", "quota", "reach", "record", "refusal", "topics", "txn", "wire"),
		"internal/httpapi": in("auth", "commitlog", "config", "controller", "controlplane",
			"coordinator", "coordinator/groups", "coordinator/shard", "coordinator/transactions", "durability", "group", "idempotency", "kafka",
			"keyring", "metadata", "nearest", "netx", "partition", "quota", "reach", "record", "refusal",
			"relay", "session", "strictjson", "topics", "txn"),
		"internal/console": in("httpapi"),

		"internal/session": in("assignor", "commitlog", "coordinator/groups", "coordinator/shard", "group", "kafka",
			"partition", "record", "refusal", "topics"),
		"internal/assignor": in("kafka"),

		"internal/topics":  in("config", "kafka", "metadata", "nearest", "partition", "record"),
		"internal/keyring": in("commitlog", "idempotency", "kafka", "partition", "record", "topics"),
		"internal/refusal": in("commitlog", "config", "group", "isr", "kafka", "metadata", "partition", "producerstate",
			"quorum", "record"),
		"internal/coordinator/groups": in("config", "coordinator", "coordinator/home", "coordinator/shard", "group",
			"kafka", "metadata"),
		"internal/coordinator/transactions": in("commitlog", "config", "coordinator", "coordinator/home", "coordinator/shard",
			"kafka", "metadata", "partition", "txn"),
		"internal/coordinator/home":  in("coordinator", "kafka", "metadata"),
		"internal/insync":            in("isr", "kafka", "partition"),
		"internal/fetcher":           in("commitlog", "kafka", "metadata", "netx", "partition", "record"),
		"internal/coordinator":       in("commitlog", "coordinator/shard", "kafka", "metadata", "partition", "record"),
		"internal/coordinator/shard": in("kafka"),
		"internal/partition":         in("commitlog", "isr", "journal", "kafka", "metadata", "record"),
		"internal/controlplane":      in("config", "controller", "kafka", "metadata"),
		"internal/quorum":            in("kafka", "netx", "vfs"),

		"internal/group":      in("coordinator/shard", "kafka", "metadata", "record"),
		"internal/txn":        in("coordinator/shard", "kafka", "metadata", "record"),
		"internal/controller": in("config", "kafka", "metadata", "record"),
		"internal/auth":       in("kafka", "metadata", "record"),
		"internal/quota":      in("kafka", "metadata", "record"),

		"internal/cleaner":   in("commitlog", "kafka", "record"),
		"internal/tier":      in("commitlog", "kafka", "record"),
		"internal/commitlog": in("journal", "kafka", "producerstate", "record", "vfs"),
		"internal/journal":   in("kafka", "tally", "vfs"),

		"internal/config":        in("kafka"),
		"internal/isr":           in("kafka"),
		"internal/metadata":      in("kafka"),
		"internal/producerstate": in("kafka"),
		"internal/record":        in("kafka"),
		"internal/idempotency":   in("kafka", "record"),
		"internal/moves":         in("kafka"),
		"internal/durability":    nil,
		"internal/nearest":       nil,
		"internal/logtest":       nil,
		"internal/strictjson":    in("nearest"),
		"internal/kafka":         nil,

		"internal/vfs":         nil,
		"internal/vfs/osfs":    in("vfs"),
		"internal/vfs/memfs":   in("vfs"),
		"internal/vfs/errorfs": in("vfs"),
		"internal/vfs/vfstest": in("vfs"),

		"internal/archtest": nil,
		"internal/sim":      {everything},
	}
}

// notBelow are the packages that even a room with everything stays out of.
func notBelow() []string { return []string{".", "internal/cli", "strandlinetest", "cmd/strandline"} }

func TestImportsPointDownwards(t *testing.T) {
	table := mayImport()
	unknown := map[string]bool{}
	for _, s := range product(t) {
		if within(s.dir(), "test") {
			continue // Real clients and faults; imports what it needs.
		}
		allowed, known := table[s.dir()]
		if !known {
			unknown[s.dir()] = true
			continue
		}
		for _, imported := range s.imports() {
			dir, ours := inModule(imported)
			if !ours {
				continue
			}
			free := slices.Contains(allowed, everything) && !slices.Contains(notBelow(), dir)
			if !free && !slices.Contains(allowed, dir) {
				t.Errorf("%s imports %s, which the table of rooms does not allow to %s", s.path, dir, s.dir())
			}
		}
	}
	for dir := range unknown {
		t.Errorf("package %s is not in the table of rooms", dir)
	}
}

// The table itself has no circle: what a room may import, directly or not,
// never may import it.
func TestTableHasNoCircle(t *testing.T) {
	table := mayImport()
	var visit func(room string, path []string)
	visit = func(room string, path []string) {
		if slices.Contains(path, room) {
			t.Errorf("circle in the table: %s", strings.Join(append(path, room), " -> "))
			return
		}
		for _, next := range table[room] {
			visit(next, append(slices.Clone(path), room))
		}
	}
	for room := range table {
		visit(room, nil)
	}
}

// The protocol library's messages are plain data at the edge and in the
// machines that speak it; its client is for the command line alone.
func TestFranzGoStaysAtTheEdge(t *testing.T) {
	const franz = "github.com/twmb/franz-go"
	messages := []string{
		"internal/wire", "internal/api", "internal/httpapi", "internal/fetcher", "internal/group",
		"internal/txn", "internal/controller", "internal/controlplane", "internal/cli", "internal/session", "internal/topics",
		"internal/coordinator/groups", "internal/coordinator/home", "internal/coordinator/transactions", "internal/peer", "internal/insync",
	}
	for _, s := range product(t) {
		if within(s.dir(), "test") {
			continue
		}
		for _, imported := range s.imports() {
			switch {
			case imported == franz+"/pkg/kmsg":
				if !slices.Contains(messages, s.dir()) {
					t.Errorf("%s imports kmsg, which stays out of %s", s.path, s.dir())
				}
			case within(imported, franz):
				if s.dir() != "internal/cli" {
					t.Errorf("%s imports %s, which only internal/cli may", s.path, imported)
				}
			}
		}
	}
}

// pureRooms take time as an argument and return what is to be done.
func pureRooms() []string {
	return []string{
		"internal/assignor", "internal/auth", "internal/config", "internal/controller", "internal/coordinator/shard",
		"internal/durability", "internal/group", "internal/idempotency", "internal/isr", "internal/kafka",
		"internal/metadata", "internal/moves", "internal/nearest", "internal/strictjson",
		"internal/producerstate", "internal/quota", "internal/reach", "internal/record", "internal/txn",
	}
}

// impure are the imports that a pure room does without, with their subpackages.
func impure() []string {
	return []string{"os", "net", "sync", "context", "math/rand", "crypto/rand", "log", "log/slog", "syscall"}
}

// mayHold are the exceptions: pools of decoders, which record's documentation
// gives the reason for, and addresses as values.
func mayHold(dir, imported string) bool {
	return dir == "internal/record" && imported == "sync" ||
		imported == "net/netip" || imported == "net/url"
}

func TestPureRooms(t *testing.T) {
	for _, s := range product(t) {
		if !slices.Contains(pureRooms(), s.dir()) {
			continue
		}
		for _, imported := range s.imports() {
			for _, banned := range impure() {
				if within(imported, banned) && !mayHold(s.dir(), imported) {
					t.Errorf("%s imports %s, and %s is pure", s.path, imported, s.dir())
				}
			}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine, and %s is pure", s.at(n.Pos()), s.dir())
			case *ast.SelectorExpr:
				if isClock(n) {
					t.Errorf("%s reads the clock, and %s is pure: take the time as an argument",
						s.at(n.Pos()), s.dir())
				}
			}
			return true
		})
	}
}

// isClock recognises the functions of package time that know what time it is.
func isClock(sel *ast.SelectorExpr) bool {
	return isSelector(sel, "time",
		"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep")
}

// isSelector recognises pkg.name for one of the names.
func isSelector(e ast.Expr, pkg string, names ...string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && slices.Contains(names, sel.Sel.Name)
}

// The doors: whoever touches the disk or the network goes through vfs or netx.
func TestDoorsToDiskAndNetwork(t *testing.T) {
	mayOpen := []string{
		"internal/vfs/osfs", "internal/netx", "internal/cli", "internal/broker", "internal/archtest",
		"cmd/strandline", ".", "strandlinetest",
		"internal/certs", "internal/certs/certstest", // The operator's files, not the data.
	}
	for _, s := range product(t) {
		if within(s.dir(), "test") || slices.Contains(mayOpen, s.dir()) {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if isSelector(call.Fun, "net", "Listen", "Dial", "DialTimeout", "ListenTCP", "DialTCP") ||
				isSelector(call.Fun, "os", "Open", "OpenFile", "Create", "ReadFile", "WriteFile",
					"Remove", "RemoveAll", "Rename", "Mkdir", "MkdirAll", "ReadDir", "Stat") {
				t.Errorf("%s goes past vfs or netx", s.at(call.Pos()))
			}
			return true
		})
	}
}
