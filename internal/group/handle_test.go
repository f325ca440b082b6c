package group_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// TestErrorResponse: a request that never reached a machine is refused in full,
// in every version.
func TestErrorResponse(t *testing.T) {
	requests := map[kmsg.Request]string{
		kmsg.NewPtrJoinGroupRequest():                    "join NOT_COORDINATOR member=",
		kmsg.NewPtrSyncGroupRequest():                    "sync NOT_COORDINATOR",
		kmsg.NewPtrHeartbeatRequest():                    "heartbeat NOT_COORDINATOR",
		kmsg.NewPtrLeaveGroupRequest():                   "leave NOT_COORDINATOR",
		kmsg.NewPtrOffsetDeleteRequest():                 "offset-delete NOT_COORDINATOR",
		kmsg.NewPtrOffsetCommitRequest():                 "commit t-0 NOT_COORDINATOR",
		&kmsg.DeleteGroupsRequest{Groups: []string{"g"}}: "delete NOT_COORDINATOR why",
	}
	for req, want := range requests {
		seedRequest(req)
		for version := range req.MaxVersion() + 1 {
			req.SetVersion(version)
			resp := group.ErrorResponse(req, kafka.ErrNotCoordinator, "why")
			if got := show(resp); got != want || resp.GetVersion() != version {
				t.Errorf("%T version %d: %s in version %d", req, version, got, resp.GetVersion())
			}
		}
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	seedRequest(fetch)
	resp := group.ErrorResponse(fetch, kafka.ErrNotCoordinator, "")
	want := "fetch NOT_COORDINATOR [t-0 -1 NOT_COORDINATOR] g: NOT_COORDINATOR"
	if got := show(resp); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	describe := &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}
	refused := group.ErrorResponse(describe, kafka.ErrNotCoordinator, "why")
	described := refused.(*kmsg.DescribeGroupsResponse)
	want = `NOT_COORDINATOR g state=Dead type="" protocol="" message="why"`
	if got := showDescribed(&described.Groups[0]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	list := group.ErrorResponse(kmsg.NewPtrListGroupsRequest(), kafka.ErrNotCoordinator, "")
	if got := list.(*kmsg.ListGroupsResponse).ErrorCode; got != int16(kafka.ErrNotCoordinator) {
		t.Errorf("list: %d", got)
	}
}

// TestGroupID: requests about one group say which.
func TestGroupID(t *testing.T) {
	for _, key := range []kmsg.Key{
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.OffsetCommit,
		kmsg.OffsetFetch, kmsg.OffsetDelete,
	} {
		req := kmsg.RequestForKey(key.Int16())
		req.SetVersion(req.MaxVersion())
		seedRequest(req)
		if id, ok := group.GroupID(req); !ok || id != "g" {
			t.Errorf("%T: %q, %v", req, id, ok)
		}
	}
	old := &kmsg.OffsetFetchRequest{Version: 7, Group: "old"}
	if id, ok := group.GroupID(old); !ok || id != "old" {
		t.Errorf("old OffsetFetch: %q, %v", id, ok)
	}
	several := &kmsg.OffsetFetchRequest{Version: 8, Groups: make([]kmsg.OffsetFetchRequestGroup, 2)}
	for _, req := range []kmsg.Request{several, kmsg.NewPtrListGroupsRequest()} {
		if id, ok := group.GroupID(req); ok {
			t.Errorf("%T: is about %q alone", req, id)
		}
	}
}

// TestSplitFetch: a fetch of several groups is answered in its order.
func TestSplitFetch(t *testing.T) {
	w := newWorld()
	w.silent = true
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version = 9
	seedRequest(commit)
	handle(w, commit)

	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = 9, true
	req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "x"}, {Group: "g"}}
	var got []*kmsg.OffsetFetchResponse
	for _, part := range group.SplitFetch(req) {
		if !part.RequireStable || part.Version != 9 {
			t.Errorf("part %+v", part)
		}
		w.step(func(fx *shard.Effects) {
			w.shard.OffsetFetch(&group.Context{Caller: collect(func(response any) {
				got = append(got, response.(*kmsg.OffsetFetchResponse))
			})}, part, fx)
		})
	}
	if diff := cmp.Diff("fetch x: g: [t-0 5 epoch=0]", show(group.MergeFetch(9, got))); diff != "" {
		t.Error(diff)
	}
}

// collect is a caller that is a function.
type collect func(any)

// Complete implements shard.Caller.
func (c collect) Complete(response any) { c(response) }

// TestWhatIsToldIsCommitted: replies that tell of records wait for them.
func TestWhatIsToldIsCommitted(t *testing.T) {
	w := newWorld()
	w.silent = true
	wait := func(req kmsg.Request, version int16) kafka.Offset {
		var fx shard.Effects
		req.SetVersion(version)
		w.shard.Handle(&group.Context{NowMs: w.nowMs, Caller: collect(func(any) {})}, req, &fx)
		return fx.MinHighWatermark
	}
	fetch := &kmsg.OffsetFetchRequest{Group: "g"}
	if got := wait(fetch, 7); got != 0 {
		t.Errorf("with nothing to tell, a fetch waits for %d", got)
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version = 9
	seedRequest(commit)
	handle(w, commit)
	handle(w, commit)
	if got := wait(fetch, 7); got != 2 {
		t.Errorf("fetch waits for %d, want 2", got)
	}
	if got := wait(&kmsg.OffsetFetchRequest{Group: "unknown"}, 7); got != 2 {
		t.Errorf("fetch of an unknown group waits for %d, want 2", got)
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version = 3
	seedRequest(join)
	handle(w, join)
	d, _ := w.shard.Describe("g")
	sync := &kmsg.SyncGroupRequest{
		Group: "g", Version: 5, Generation: d.Generation, MemberID: d.Members[0].MemberID,
	}
	handle(w, sync)
	if got := wait(sync, 5); got != 3 {
		t.Errorf("sync waits for %d, want 3", got)
	}
	if got := wait(&kmsg.HeartbeatRequest{Group: "g"}, 4); got != 0 {
		t.Errorf("heartbeat waits for %d", got)
	}
}

// TestStrings: what the record formats cannot hold is refused or cut.
func TestStrings(t *testing.T) {
	long := strings.Repeat("x", 1<<15)
	answer := func(req kmsg.Request, clientID string) string {
		w := newWorld()
		w.silent = true
		req.SetVersion(min(req.MaxVersion(), 9))
		var got string
		w.step(func(fx *shard.Effects) {
			w.shard.Handle(&group.Context{
				NowMs: w.nowMs, ClientID: clientID,
				Caller: collect(func(response any) { got = show(response) }),
			}, req, fx)
		})
		return got
	}
	join := func(change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
		req := kmsg.NewPtrJoinGroupRequest()
		seedRequest(req)
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
		change(req)
		return req
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	seedRequest(commit)
	commit.Group = long
	commit.Topics[0].Topic = "t"
	for _, x := range []struct {
		name, want string
		req        kmsg.Request
	}{
		{
			"group", "join INVALID_GROUP_ID member=",
			join(func(r *kmsg.JoinGroupRequest) { r.Group = long }),
		},
		{
			"type", "join INCONSISTENT_GROUP_PROTOCOL member=",
			join(func(r *kmsg.JoinGroupRequest) { r.ProtocolType = long }),
		},
		{
			"protocol", "join INCONSISTENT_GROUP_PROTOCOL member=",
			join(func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = long }),
		},
		{
			"instance", "join INVALID_REQUEST member=",
			join(func(r *kmsg.JoinGroupRequest) { r.InstanceID = &long }),
		},
		{"commit", "commit t-0 INVALID_GROUP_ID", commit},
		{"delete", "offset-delete INVALID_GROUP_ID", &kmsg.OffsetDeleteRequest{Group: long}},
		{"heartbeat", "heartbeat INVALID_GROUP_ID", &kmsg.HeartbeatRequest{Group: long}},
		{"leave", "leave INVALID_GROUP_ID", &kmsg.LeaveGroupRequest{Group: long}},
	} {
		got := answer(x.req, "c")
		if got != x.want {
			t.Errorf("%s: got %.80q, want %q", x.name, got, x.want)
		}
	}
	got := answer(join(func(*kmsg.JoinGroupRequest) {}), long)
	if !strings.HasPrefix(got, "join MEMBER_ID_REQUIRED member=xxx") || len(got) > 1200 {
		t.Errorf("long client id: %.80q, %d bytes", got, len(got))
	}
}
