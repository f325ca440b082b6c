package api

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/kafka"
)

func newServices() *Services {
	return &Services{Broker: func() *config.Broker { return &config.Broker{QueuedMaxRequestBytes: 1 << 20} }}
}

// setCodes sets every error code of a message, one element in each list, and
// returns how many there are.
func setCodes(v reflect.Value, code kafka.Code) (n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if v.Type().Field(i).Name == "ErrorCode" && f.Kind() == reflect.Int16 {
				f.SetInt(int64(code))
				n++
				continue
			}
			n += setCodes(f, code)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			n += setCodes(v.Index(0), code)
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			n += setCodes(v.Elem(), code)
		}
	}
	return n
}

// Every error code of every answer in the table is found, at whatever depth.
func TestEveryErrorCodeIsFound(t *testing.T) {
	s := newServices()
	table := s.Table()
	for key := range table {
		resp := kmsg.ResponseForKey(key)
		want := setCodes(reflect.ValueOf(resp).Elem(), kafka.ErrUnknownServerError)
		s.errors.noteAll(key, resp)
		got := 0
		for c := range s.ErrorCounts() {
			if c.Key == key && c.Code == kafka.ErrUnknownServerError {
				got = int(c.Count)
			}
		}
		if got != want {
			t.Errorf("%s: %d of %d error codes were found", Name(key), got, want)
		}
		if want == 0 {
			t.Errorf("%s has no error codes: is this test looking?", Name(key))
		}
	}
}

// Codes that the protocol does not have are counted together.
func TestUnknownErrorCodes(t *testing.T) {
	s := newServices()
	s.Table()
	for _, code := range []kafka.Code{-7, 9999, kafka.ErrNone} {
		s.errors.note(0, code)
	}
	for c := range s.ErrorCounts() {
		if !c.Other || c.Count != 2 {
			t.Errorf("%+v", c)
		}
	}
}

func TestNamesAreKafkas(t *testing.T) {
	for key, want := range map[kmsg.Key]string{
		kmsg.InitProducerID: "InitProducerId", kmsg.DescribeACLs: "DescribeAcls", kmsg.ApiVersions: "ApiVersions",
		kmsg.Produce: "Produce",
	} {
		if got := Name(key.Int16()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
