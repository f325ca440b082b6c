package api

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/wire"
)

// Fill fills a message with random contents, a few elements in each array.
func Fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			Fill(r, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case f.Type == reflect.TypeFor[kmsg.Tags]():
				if r.IntN(4) == 0 {
					v.Field(i).Addr().Interface().(*kmsg.Tags).Set(200+r.Uint32N(100), []byte("tag"))
				}
			case f.IsExported() && f.Name != "Version":
				Fill(r, v.Field(i))
			}
		}
	case reflect.Slice:
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			Fill(r, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			Fill(r, v.Index(i))
		}
	case reflect.String:
		v.SetString("some string"[:r.IntN(12)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(r.IntN(256)))
	default:
		v.SetInt(int64(int8(r.Uint32())))
	}
}

// TestLayouts is internal: a layout shows from outside only when it is wrong. It
// reads every version of every request as the library writes it, to the last
// byte, and counts what the library decodes.
func TestLayouts(t *testing.T) {
	s := &Services{}
	r := rand.New(rand.NewPCG(1, 2))
	compiled := compileLayouts()
	rows := s.rows(newMemory(1<<20, 1<<20))
	for key, first := range decided() {
		rows = append(rows, entry{key: key, min: first, max: kmsg.RequestForKey(key.Int16()).MaxVersion()})
	}
	for _, row := range rows {
		layout, ok := compiled[row.key.Int16()]
		if row.key == kmsg.Produce {
			continue
		}
		if !ok {
			t.Errorf("%s has no layout", row.key.Name())
			continue
		}
		for version := row.min; version <= row.max; version++ {
			for range 50 {
				req := kmsg.RequestForKey(row.key.Int16())
				Fill(r, reflect.ValueOf(req).Elem())
				req.SetVersion(version)
				body := req.AppendTo(nil)
				m := measurer{
					body:    bodyReader{src: body, flexible: req.IsFlexible()},
					version: version, most: size{elements: 1 << 30, bytes: 1 << 40},
				}
				m.structure(layout)
				if m.body.err != nil || len(m.body.src) > 0 {
					t.Fatalf("%s version %d: %v, %d bytes left of % x",
						row.key.Name(), version, m.body.err, len(m.body.src), body)
				}
				again := kmsg.RequestForKey(row.key.Int16())
				again.SetVersion(version)
				if err := again.ReadFrom(body); err != nil {
					t.Fatal(err)
				}
				if n := elements(reflect.ValueOf(again).Elem()); n > m.size.elements &&
					row.key != kmsg.BrokerHeartbeat { // It has arrays in its tags, of brokers' directories.
					t.Fatalf("%s version %d: %d elements measured, %d decoded", row.key.Name(), version, m.size.elements, n)
				}
				if _, err := measure(layout, body, version, req.IsFlexible(), size{}); m.size.elements > 0 && !errors.Is(err, errTooLarge) {
					t.Fatalf("%s version %d: %v", row.key.Name(), version, err)
				}
			}
		}
	}
}

// What was decoded stays as it is when the frame's memory is used again, tagged fields and all.
func TestDecodedOutlivesTheFrame(t *testing.T) {
	m := newMemory(1<<20, 1<<20)
	r := rand.New(rand.NewPCG(3, 4))
	aliased := 0
	for key := range m.layouts {
		for range 50 {
			sent := kmsg.RequestForKey(key)
			Fill(r, reflect.ValueOf(sent).Elem())
			sent.SetVersion(sent.MaxVersion())
			w := &wire.Request{Key: key, Version: sent.GetVersion(), Body: sent.AppendTo(nil)}
			want, got := kmsg.RequestForKey(key), kmsg.RequestForKey(key)
			want.SetVersion(w.Version)
			if err := want.ReadFrom(bytes.Clone(w.Body)); err != nil {
				t.Fatal(err)
			}
			give, err := m.read(t.Context(), w, got)
			if err != nil {
				t.Fatalf("%s: %v", kmsg.NameForKey(key), err)
			}
			give()
			for i := range w.Body {
				w.Body[i] = '?'
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v has become %+v", kmsg.NameForKey(key), want, got)
			}
			if bytes.Contains(want.AppendTo(nil), []byte("tag")) {
				aliased++
			}
		}
	}
	if aliased == 0 {
		t.Error("no request had tagged fields")
	}
}

// elements counts the elements of all arrays in a message.
func elements(v reflect.Value) int {
	n := 0
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Slice || f.Type().Elem().Kind() == reflect.Uint8 {
			continue
		}
		n += f.Len()
		if f.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for j := range f.Len() {
			n += elements(f.Index(j))
		}
	}
	return n
}

// TestStructBytes: no element of a request is larger than what is counted for it.
func TestStructBytes(t *testing.T) {
	var look func(v reflect.Type)
	look = func(v reflect.Type) {
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				if n := f.Type.Elem().Size(); n > structBytes {
					t.Errorf("%s takes %d bytes", f.Type.Elem(), n)
				}
				look(f.Type.Elem())
			}
		}
	}
	for key := range layouts {
		look(reflect.TypeOf(kmsg.RequestForKey(key.Int16())).Elem())
	}
}

// Row is a row of the table, for tests outside of this package.
type Row struct{ Key, Min, Max int16 }

// Rows lists the table.
func (s *Services) Rows() []Row {
	var out []Row
	for _, row := range s.rows(newMemory(1<<20, 1<<20)) {
		out = append(out, Row{row.key.Int16(), row.min, row.max})
	}
	return out
}
