package api_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// setStrings gives every string of a message a value, with one element in each list.
func setStrings(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Type != reflect.TypeFor[kmsg.Tags]() {
				setStrings(v.Field(i), s)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			setStrings(v.Index(0), s)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setStrings(v.Elem(), s)
	case reflect.String:
		v.SetString(s)
	}
}

// TestLongStrings: what is as long as a string may be is answered with something that
// decodes, though the answer may say more about it than a string can hold. What is longer
// is no request.
func TestLongStrings(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1)
	w.must(w.ensureOffsetsTopic(t.Context()))
	for key, row := range w.table {
		for _, version := range slices.Compact([]int16{row.Min, row.Max}) {
			req := kmsg.RequestForKey(key)
			setStrings(reflect.ValueOf(req).Elem(), strings.Repeat("ä", math.MaxInt16/2))
			req.SetVersion(version)
			c := w.connect()
			c.send(req)
			c.expectSane(req)
			if !req.IsFlexible() {
				continue
			}
			setStrings(reflect.ValueOf(req).Elem(), strings.Repeat("s", math.MaxInt16+1))
			req.SetVersion(version)
			if without := kmsg.RequestForKey(key); len(without.AppendTo(nil))+math.MaxInt16 < len(req.AppendTo(nil)) {
				c = w.connect()
				c.send(req)
				c.expectClosed()
			}
		}
	}
	w.alive()
}
