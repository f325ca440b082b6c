package strictjson

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Decode reads a document into the struct that v points to. Fields go by their
// json tag. It knows strings, booleans, integers, bytes (in base64), and slices,
// maps by string, structs and pointers of what it knows; a pointer and bytes may be null.
// The error is an *Error. It panics if v is of another type.
func Decode(src []byte, v any) error {
	var r Reader
	r.Reset(src)
	r.value(reflect.ValueOf(v).Elem())
	return r.End()
}

func (r *Reader) value(v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		if r.Null() {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		r.structure(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if r.Null() {
				v.SetZero()
				return
			}
			v.SetBytes(r.Base64([]byte{}))
			return
		}
		r.slice(v)
	case reflect.Map:
		r.mapping(v)
	case reflect.String:
		v.SetString(r.String())
	case reflect.Bool:
		v.SetBool(r.Bool())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		high := int64(math.MaxInt64) >> (64 - v.Type().Bits())
		v.SetInt(r.Int(-high-1, high))
	default:
		panic(fmt.Sprintf("strictjson: cannot decode into %s", v.Type()))
	}
}

func (r *Reader) structure(v reflect.Value) {
	names, fields := fieldsOf(v.Type())
	o := r.Object(names)
	for i, ok := r.Next(&o); ok; i, ok = r.Next(&o) {
		r.value(v.FieldByIndex(fields[i]))
	}
}

// fieldsOf returns the names and places of a struct's fields, those of embedded
// structs included.
func fieldsOf(t reflect.Type) (names []string, fields [][]int) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" {
			continue
		}
		names, fields = append(names, name), append(fields, f.Index)
	}
	return names, fields
}

func (r *Reader) slice(v reflect.Value) {
	out := reflect.MakeSlice(v.Type(), 0, 0)
	a := r.Array()
	for r.More(&a) {
		out = reflect.Append(out, reflect.Zero(v.Type().Elem()))
		r.value(out.Index(out.Len() - 1))
	}
	v.Set(out)
}

func (r *Reader) mapping(v reflect.Value) {
	out := reflect.MakeMap(v.Type())
	m := r.Map()
	for key, ok := r.NextKey(&m); ok; key, ok = r.NextKey(&m) {
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(element)
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), element)
	}
	v.Set(out)
}
