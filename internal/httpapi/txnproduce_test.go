package httpapi_test

import (
	"slices"
	"testing"

	"github.com/strandline/strandline/internal/httpapi"
)

// TestTransactionSendsPartitionsAgain: what was lost is sent again with all records of its
// partition, whose places among them are their sequences; and not at all once the request
// cannot succeed any more.
func TestTransactionSendsPartitionsAgain(t *testing.T) {
	partitions := []int32{0, 1, 0, 2, 1}
	in := func(of ...int) func(int) bool { return func(i int) bool { return slices.Contains(of, i) } }
	for _, test := range []struct {
		lost, refused []int
		want          []bool
	}{
		{nil, nil, []bool{false, false, false, false, false}},
		{[]int{2}, nil, []bool{true, false, true, false, false}},
		{[]int{3, 4}, nil, []bool{false, true, false, true, true}},
		{[]int{2}, []int{3}, []bool{false, false, false, false, false}},
	} {
		again, some := httpapi.SentAgain(partitions, in(test.lost...), in(test.refused...))
		if !slices.Equal(again, test.want) || some != slices.Contains(test.want, true) {
			t.Errorf("lost %v, refused %v: sent again %v (%v), want %v", test.lost, test.refused, again, some, test.want)
		}
	}
}
