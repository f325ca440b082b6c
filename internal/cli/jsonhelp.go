package cli

import (
	"reflect"
	"strings"
	"time"
)

// jsonHelp names the fields of a result in JSON, from the type itself, so that
// the help cannot be wrong about them.
func jsonHelp[T any]() string {
	return "With --json it is " + jsonShape(reflect.TypeFor[T]()) + "."
}

func jsonShape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonShape(t.Elem())
	case reflect.Int32, reflect.Int64:
		return "numbers" // Only in a list.
	case reflect.String:
		return "texts"
	case reflect.Slice:
		return "a list of " + jsonShape(t.Elem())
	case reflect.Struct:
		return "{" + strings.Join(jsonFields(t), ", ") + "}"
	}
	return t.Kind().String()
}

func jsonFields(t reflect.Type) []string {
	var fields []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			name += ": " + jsonShape(f.Type)
		}
		fields = append(fields, name)
	}
	return fields
}

// resultHelp documents what a command prints for scripts: the columns of its
// lines and the fields of its JSON.
func resultHelp[T any](columns ...string) string {
	return columnsHelp(columns...) + "\n" + jsonHelp[T]()
}
