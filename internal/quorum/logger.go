package quorum

import (
	"fmt"
	"log/slog"
)

// raftLogger brings the library's lines to slog. What it calls information is
// debugging to us: changes of leader are logged by the loop.
type raftLogger struct{ log *slog.Logger }

func (l raftLogger) Debug(v ...any)            { l.log.Debug("raft", "line", fmt.Sprint(v...)) }
func (l raftLogger) Debugf(f string, v ...any) { l.log.Debug("raft", "line", fmt.Sprintf(f, v...)) }
func (l raftLogger) Info(v ...any)             { l.log.Debug("raft", "line", fmt.Sprint(v...)) }
func (l raftLogger) Infof(f string, v ...any)  { l.log.Debug("raft", "line", fmt.Sprintf(f, v...)) }
func (l raftLogger) Warning(v ...any)          { l.log.Warn("raft", "line", fmt.Sprint(v...)) }
func (l raftLogger) Warningf(f string, v ...any) {
	l.log.Warn("raft", "line", fmt.Sprintf(f, v...))
}
func (l raftLogger) Error(v ...any)            { l.log.Error("raft", "line", fmt.Sprint(v...)) }
func (l raftLogger) Errorf(f string, v ...any) { l.log.Error("raft", "line", fmt.Sprintf(f, v...)) }

// Fatal and Panic report that our storage broke its contract: a bug of ours,
// after which nothing may be written.
func (l raftLogger) Fatal(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
